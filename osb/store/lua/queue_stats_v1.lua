-- queue_stats_v1: sizes and ages of one kind's queue, for metrics and the command line.
-- ARGV: 1 kind
-- Returns {dirty now, dirty later, running, due, quarantined, oldest now ms, oldest later ms, failing}.
-- include: queue_lib_v1.lua
local kind, now = ARGV[1], q_now()
local later = redis.call('ZCARD', q_key(kind, 'later'))

local function age(first) return first and math.max(0, now - tonumber(first)) or 0 end

-- Oldest of class now: the first dirty key that is not in later (promotion after 30 s keeps the search short).
local oldest = false
local first = redis.call('ZRANGE', q_key(kind, 'dirty'), 0, 499, 'WITHSCORES')
for i = 1, #first, 2 do
  if not oldest and not redis.call('ZSCORE', q_key(kind, 'later'), first[i]) then oldest = first[i + 1] end
end
return {
  redis.call('ZCARD', q_key(kind, 'dirty')) - later, later, redis.call('ZCARD', q_key(kind, 'run')),
  redis.call('ZCARD', q_key(kind, 'due')), redis.call('ZCARD', q_key(kind, 'quar')),
  age(oldest), age(redis.call('ZRANGE', q_key(kind, 'later'), 0, 0, 'WITHSCORES')[2]),
  redis.call('HLEN', q_key(kind, 'fail')),
}

-- queue_rescue_v1: bring back what vanished: runs whose lease ended, wake-ups that nobody took. Also promotes keys
-- that waited 30 s in class later, and sweeps allowances that are full again.
-- ARGV: 1 uuid4   2 kind   3 limit (for each of the three)
-- Returns {broken runs, repeated wake-ups, promoted, {newly quarantined members}}.
-- include: queue_begin_lib_v1.lua
q_seed(ARGV[1])
local kind, limit, now = ARGV[2], ARGV[3], q_now()

-- Members of a zset whose time has passed, or lies further ahead than it can be set (Redis' clock went back).
local function expired(part, furthest)
  local key = q_key(kind, part)
  local keys = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
  local ahead = redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now + furthest), '+inf', 'LIMIT', 0, limit)
  for _, member in ipairs(ahead) do keys[#keys + 1] = member end
  return keys
end

local broken, quarantined = expired('run', 2 * Q_LEASE), {}
for _, member in ipairs(broken) do
  if q_broken(kind, member) then
    quarantined[#quarantined + 1] = member
  else
    q_wake(kind, member, 2, 0)
  end
end

-- While no worker takes anything its list holds every key's message already: then repeats are marked, not sent.
local repeated, full = 0, 1000 + 2 * redis.call('ZCARD', q_key(kind, 'dirty'))
for _, member in ipairs(expired('wake', Q_WAKE * 32)) do
  if redis.call('ZSCORE', q_key(kind, 'dirty'), member) and not redis.call('ZSCORE', q_key(kind, 'run'), member)
    and not q_blocked(kind, member) then
    local tries = tonumber(redis.call('HGET', q_key(kind, 'wtry'), member) or 0)
    local class = q_class(kind, member)
    q_wake(kind, member, class, tries + 1, redis.call('LLEN', q_list(kind, class)) > full)
    repeated = repeated + 1
  else
    q_drop_wake(kind, member)
  end
end

local late = redis.call('ZRANGEBYSCORE', q_key(kind, 'later'), '-inf', now - 30000, 'LIMIT', 0, limit)
for _, member in ipairs(late) do
  redis.call('ZREM', q_key(kind, 'later'), member)
  q_offer(kind, member, 2)
end

redis.call('ZREMRANGEBYSCORE', q_key(kind, 'gate'), '-inf', now)
redis.call('ZREMRANGEBYSCORE', q_key(kind, 'gate'), '(' .. string.format('%.0f', now + Q_GATE_LIMIT), '+inf')
return { #broken, repeated, #late, quarantined }

-- limit_take_v1: a token bucket shared by all processes.
-- KEYS: 1 osb:limit:{name} (hash `tokens`, `at`; TTL until it is full again, so an idle bucket leaves nothing)
-- ARGV: 1 tokens per second   2 size of the bucket   3 tokens wanted
-- Returns ms to wait: 0 taken; more: nothing was taken, ask again then; -1 never (more than the bucket holds).
-- include: queue_lib_v1.lua
local rate, size, wanted = tonumber(ARGV[1]) / 1000, tonumber(ARGV[2]), tonumber(ARGV[3])
if wanted > size then return -1 end
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local at = math.min(tonumber(bucket[2] or q_now()), q_now()) -- the clock may have gone back
local tokens = math.min(size, tonumber(bucket[1] or size) + (q_now() - at) * rate)
local wait = 0
if tokens >= wanted then
  tokens = tokens - wanted
else
  wait = math.ceil((wanted - tokens) / rate)
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', q_now()))
redis.call('PEXPIRE', KEYS[1], math.ceil((size - tokens) / rate) + 1)
return wait

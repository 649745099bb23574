-- duty_hold_v1: take or prolong a duty that one process does at a time.
-- KEYS: 1 osb:duty:{name} (string: owner; TTL = its lease)      ARGV: 1 owner   2 lease ms
-- Returns 1 held by this owner now, 0 somebody else's. Rebuilt by itself: whoever asks first has it.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1

-- stamp_read_v1: how long ago a stamp was set.
-- KEYS: 1 the stamp      Returns {age ms, text}, or {-1, ''} when there is none. Never negative ages.
-- include: queue_lib_v1.lua
local stamp = redis.call('GET', KEYS[1])
if not stamp then return { -1, '' } end
local at, text = string.match(stamp, '^(%d+) (.*)$')
return { math.max(0, q_now() - tonumber(at)), text }

-- The stream of a kind gave a sign of life.
-- KEYS[1] osb:m:{kind}:meta
-- Returns the ms noted.
-- Rebuilt by: the next event.

-- include: mirror_lib_v1.lua

local now = mirror_now()
redis.call('HSET', KEYS[1], 'fresh', now)
return now

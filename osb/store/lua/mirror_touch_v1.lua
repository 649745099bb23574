-- The stream of a kind gave a sign of life.
-- KEYS[1] osb:m:{kind}:meta
-- Returns 1 when the mirror of the kind may be believed, else 0.
-- Rebuilt by: the next event.

-- include: mirror_lib_v1.lua

redis.call('HSET', KEYS[1], 'fresh', mirror_now())
return mirror_known(KEYS[1]) and 1 or 0

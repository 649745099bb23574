-- Load the fast pass of a pool for a run that goes on.
-- ARGV: 1 ns/pool   2 token   3 waiters   4 pods
-- Returns {1 when the token is the pool's current one else 0, what hot_load returns}.
-- include: hot_lib_v1.lua
local ours = redis.call('HGET', 'osb:q:pool:tok', ARGV[1]) == ARGV[2]
return { ours and 1 or 0, hot_load(ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])) }

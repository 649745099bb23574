-- Begin a run of a pool and load its fast pass in one trip.
-- ARGV: 1 uuid4   2 ns/pool   3 token   4 '1' when sent by hand   5 task id (hand only)   6 waiters   7 pods
-- Returns {what q_begin returns, what hot_load returns or false when no run was begun}. Safe to repeat with its token.
-- include: queue_begin_lib_v1.lua
-- include: hot_lib_v1.lua
q_seed(ARGV[1])
local begun = q_begin('pool', ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5])
if begun[1] ~= 'run' then return { begun, false } end
return { begun, hot_load(ARGV[2], tonumber(ARGV[6]), tonumber(ARGV[7])) }

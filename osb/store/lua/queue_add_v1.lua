-- queue_add_v1: mark keys dirty, or keep their earliest due time; wake-ups are published in the same step.
-- ARGV: 1 uuid4   2 msgpack of the list of adds (queue_lib_v1.lua, q_adds)
-- Returns the number of adds. Safe to repeat: a dirty key stays dirty, the earliest time stays.
-- include: queue_lib_v1.lua
q_seed(ARGV[1])
local adds = cmsgpack.unpack(ARGV[2])
q_adds(adds)
return #adds

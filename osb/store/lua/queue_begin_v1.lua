-- queue_begin_v1: start a run of a key.
-- ARGV: 1 uuid4   2 kind   3 member   4 token   5 '1' when sent by hand   6 task id (hand only)
-- Returns what q_begin returns. Safe to repeat with the same token: the run is begun once.
-- include: queue_begin_lib_v1.lua
q_seed(ARGV[1])
return q_begin(ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1', ARGV[6])

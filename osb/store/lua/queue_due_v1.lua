-- queue_due_v1: timers that have come turn into full passes.
-- ARGV: 1 uuid4   2 kind   3 limit
-- Returns how many keys it took; equal to the limit means: call again.
-- include: queue_lib_v1.lua
q_seed(ARGV[1])
local kind = ARGV[2]
local keys = redis.call('ZRANGEBYSCORE', q_key(kind, 'due'), '-inf', q_now(), 'LIMIT', 0, ARGV[3])
for _, member in ipairs(keys) do
  redis.call('ZREM', q_key(kind, 'due'), member)
  redis.call('HDEL', q_key(kind, 'seen'), member)
  q_dirty(kind, member, 2, 'timer')
  redis.call('SADD', q_key(kind, 'deep'), member)
  local blocked = q_blocked(kind, member)
  if blocked then q_due(kind, member, blocked) else q_offer(kind, member, 2) end
end
return #keys

-- queue_forget_v1: remove everything the queue knows of one key (an operator's tool). A run in progress is fenced off.
-- ARGV: 1 kind   2 member          Returns 1 when anything was removed.
-- include: queue_lib_v1.lua
local kind, member, n = ARGV[1], ARGV[2], 0
for _, part in ipairs({ 'dirty', 'later', 'run', 'wake', 'due', 'quar', 'gate' }) do
  n = n + redis.call('ZREM', q_key(kind, part), member)
end
for _, part in ipairs({ 'why', 'tok', 'seen', 'wakec', 'wtry', 'fail', 'crash' }) do
  n = n + redis.call('HDEL', q_key(kind, part), member)
end
for _, part in ipairs({ 'deep', 'taken' }) do n = n + redis.call('SREM', q_key(kind, part), member) end
return n > 0 and 1 or 0

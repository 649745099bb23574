-- queue_renew_v1: prolong leases that are still ours.
-- ARGV: kind, member, token for each lease
-- Returns a list of 1 (12 s from now) or 0 (the token is not current: somebody took over or Redis was flushed).
-- include: queue_lib_v1.lua
local kept = {}
for i = 1, #ARGV, 3 do
  local kind, member = ARGV[i], ARGV[i + 1]
  local ours = q_token(kind, member) == ARGV[i + 2]
  if ours then redis.call('ZADD', q_key(kind, 'run'), q_now() + Q_LEASE, member) end
  kept[#kept + 1] = ours and 1 or 0
end
return kept

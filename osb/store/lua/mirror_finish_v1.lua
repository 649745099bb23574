-- End a list of version L after all its puts and prunes: raise the floor, drop the tombstones below it, be synced.
-- KEYS[1] osb:m:{kind}:meta   KEYS[2] osb:m:{kind}:tomb
-- ARGV[1] L   ARGV[2] epoch of the list   ARGV[3] floor when the list began
-- Returns done | refused (lost since the list began) | older (L below the floor: the cluster's store was restored).
-- Rebuilt by: see mirror_lib_v1.

-- include: mirror_lib_v1.lua

local m = redis.call('HMGET', KEYS[1], 'epoch', 'boot', 'floor')
if m[1] ~= ARGV[2] or m[2] ~= mirror_boot() then return 'refused' end
if mirror_newer(ARGV[3], ARGV[1]) then return 'older' end
local floor = m[3] or '0'
if mirror_newer(ARGV[1], floor) then floor = ARGV[1] end
redis.call('HSET', KEYS[1], 'floor', floor, 'synced', ARGV[2], 'fresh', mirror_now())
local tombs = redis.call('HGETALL', KEYS[2])
for i = 1, #tombs, 2 do
  if not mirror_newer(tombs[i + 1], floor) then redis.call('HDEL', KEYS[2], tombs[i]) end
end
return 'done'

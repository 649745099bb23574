-- Begin a list of one kind: after a flush or a restart of Redis the mirror gets a new epoch and is unsynced.
-- KEYS[1] osb:m:{kind}:meta
-- ARGV[1] random text for a new epoch
-- Returns {epoch, floor, known 0|1}.
-- Rebuilt by: the list that follows.

-- include: mirror_lib_v1.lua

local boot = mirror_boot()
local m = redis.call('HMGET', KEYS[1], 'epoch', 'boot', 'floor')
if not m[1] or m[1] == '' or m[2] ~= boot then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'boot', boot, 'synced', '', 'floor', '0')
  return { ARGV[1], '0', 0 }
end
return { m[1], m[3] or '0', mirror_known(KEYS[1]) and 1 or 0 }

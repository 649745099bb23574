-- profiles_keep_v1: keep the last good text of assign profiles, never an older one than is kept.
-- KEYS: 1 osb:profiles (hash: uid, version, text)      ARGV: 1 uid   2 resourceVersion   3 text
-- Returns 1 kept, 0 not newer. Rebuilt by: any list or read of the ConfigMap, as long as it is good.
local known = redis.call('HGET', KEYS[1], 'version')
if known and (#known > #ARGV[2] or (#known == #ARGV[2] and known >= ARGV[2])) then return 0 end
redis.call('HSET', KEYS[1], 'uid', ARGV[1], 'version', ARGV[2], 'text', ARGV[3])
return 1

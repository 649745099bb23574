-- Forget one kind and distrust every ledger: the cluster's own store went back in time, all versions mean nothing.
-- KEYS[1..4] as in mirror_put_v1   KEYS[5] osb:l:all (set of pools that have a ledger)
-- ARGV[1..2] as in mirror_put_v1   ARGV[3] random text for the new epoch
-- Returns the number of objects forgotten.
-- Rebuilt by: the next list of the kind; the ledgers by their pools' next pass.

-- include: mirror_lib_v1.lua

local c = { doc = KEYS[1], tomb = KEYS[2], rank = KEYS[4], ix = ARGV[1], ledger = ARGV[2] }
local gone = 0
for _, name in ipairs(redis.call('HKEYS', c.doc)) do
  mirror_remove(c, name, mirror_head(redis.call('HGET', c.doc, name)), '0')
  gone = gone + 1
end
redis.call('DEL', c.tomb)
redis.call('HSET', KEYS[3], 'epoch', ARGV[3], 'boot', mirror_boot(), 'synced', '', 'floor', '0')
for _, pool in ipairs(redis.call('SMEMBERS', KEYS[5])) do
  redis.call('HSET', c.ledger .. pool .. ':meta', 'state', 'lost')
end
return gone

-- Move objects of one kind forward, never back, and mark dirty what each move concerns, in one step.
-- KEYS[1] osb:m:{kind}:doc   KEYS[2] osb:m:{kind}:tomb   KEYS[3] osb:m:{kind}:meta   KEYS[4] osb:m:{kind}:rank
-- ARGV[1] prefix of the kind's index keys   ARGV[2] prefix of the ledgers   ARGV[3] 1 = comes from a watch or list (fresh)
-- ARGV[4] uuid4 for message ids, then two per object: msgpack [name, version, uid, expected, rank, pool, adds], and the whole new value of the doc hash.
--   expected = version of the entry that `adds` were computed from, '' = none; rank '' = may not be handed out
-- Returns {unsynced 0|1, answer...}; answer 1 applied, 0 old, or the current value ('' = none): repeat with it.
-- Rebuilt by: see mirror_lib_v1.

-- include: queue_lib_v1.lua
-- include: mirror_lib_v1.lua

q_seed(ARGV[4])
local c = { doc = KEYS[1], tomb = KEYS[2], rank = KEYS[4], ix = ARGV[1], ledger = ARGV[2] }
c.floor = redis.call('HGET', KEYS[3], 'floor') or '0'

local function put(item, value)
  local name, version = item[1], item[2]
  local raw = redis.call('HGET', c.doc, name)
  local e = mirror_head(raw)
  if e and not mirror_newer(version, e.version) then return 0 end
  if not e and not mirror_newer(version, mirror_dead(c, name)) then return 0 end
  if (e and e.version or '') ~= item[4] then return raw or '' end
  local new = mirror_head(value)
  redis.call('HSET', c.doc, name, value)
  mirror_index(c, name, e and e.indexes or {}, new.indexes)
  mirror_stock(c, name, e and e.pool or '', item[6], item[3], item[5])
  redis.call('HDEL', c.tomb, name)
  q_adds(item[7])
  return 1
end

local out = { mirror_known(KEYS[3]) and 0 or 1 }
for i = 5, #ARGV, 2 do out[#out + 1] = put(cmsgpack.unpack(ARGV[i]), ARGV[i + 1]) end
if ARGV[3] == '1' then redis.call('HSET', KEYS[3], 'fresh', mirror_now()) end
return out

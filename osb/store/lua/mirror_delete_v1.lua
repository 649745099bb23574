-- Take deleted objects out of the mirror, unless a later incarnation lives there already.
-- KEYS, ARGV[1..4] as in mirror_put_v1; then one per object: msgpack [name, version, expected, adds].
--   version = that of the DELETED event's object
-- Returns as mirror_put_v1.
-- Rebuilt by: see mirror_lib_v1.

-- include: queue_lib_v1.lua
-- include: mirror_lib_v1.lua

q_seed(ARGV[4])
local c = { doc = KEYS[1], tomb = KEYS[2], rank = KEYS[4], ix = ARGV[1], ledger = ARGV[2] }
c.floor = redis.call('HGET', KEYS[3], 'floor') or '0'

local function delete(item)
  local name, version = item[1], item[2]
  local raw = redis.call('HGET', c.doc, name)
  local e = mirror_head(raw)
  if e and mirror_newer(e.version, version) then
    mirror_bury(c, name, version)
    return 0
  end
  if not e and not mirror_newer(version, mirror_dead(c, name)) then return 0 end
  if (e and e.version or '') ~= item[3] then return raw or '' end
  mirror_remove(c, name, e, version)
  q_adds(item[4])
  return 1
end

local out = { mirror_known(KEYS[3]) and 0 or 1 }
for i = 5, #ARGV do out[#out + 1] = delete(cmsgpack.unpack(ARGV[i])) end
if ARGV[3] == '1' then redis.call('HSET', KEYS[3], 'fresh', mirror_now()) end
return out

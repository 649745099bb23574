-- Take out names that a list of version L did not have, but only entries that are not newer than the list.
-- KEYS, ARGV[1..2] as in mirror_put_v1   ARGV[3] L   ARGV[4] epoch of the list   ARGV[5] uuid4 for message ids
-- then one per name: msgpack [name, expected, adds].
-- Returns {refused 0|1, answer...} as mirror_put_v1; refused = the mirror was lost since the list began: list again.
-- Rebuilt by: see mirror_lib_v1.

-- include: queue_lib_v1.lua
-- include: mirror_lib_v1.lua

q_seed(ARGV[5])
local c = { doc = KEYS[1], tomb = KEYS[2], rank = KEYS[4], ix = ARGV[1], ledger = ARGV[2] }
local m = redis.call('HMGET', KEYS[3], 'epoch', 'boot')
if m[1] ~= ARGV[4] or m[2] ~= mirror_boot() then return { 1 } end

local function prune(item)
  local raw = redis.call('HGET', c.doc, item[1])
  local e = mirror_head(raw)
  if not e or mirror_newer(e.version, ARGV[3]) then return 0 end
  if e.version ~= item[2] then return raw end
  mirror_remove(c, item[1], e, ARGV[3])
  q_adds(item[3])
  return 1
end

local out = { 0 }
for i = 6, #ARGV do out[#out + 1] = prune(cmsgpack.unpack(ARGV[i])) end
return out

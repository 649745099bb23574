-- What the routing table needs to know before objects of one kind are put or deleted.
-- KEYS[1] osb:m:{kind}:doc
-- ARGV[1] what beside the old entries: holders (pool pods) | claims (sandboxes) | stars (pools) | none
-- ARGV[2] prefix of the sandboxes' index keys   ARGV[3] prefix of the ledgers
-- then one per object: msgpack [name], with claims [name, ns/pool or '', sandbox UID, [claimed pod or '' per slot],
-- [recorded pod or '' per slot]]
-- Returns per object {value or false, [holders or stars] | 1 when record and ledger agree, else 0}.
-- Rebuilt by: nothing is written.

local function index(name, value) return redis.call('ZRANGE', ARGV[2] .. name .. ':' .. value, 0, -1) end

local function state(ledger, pod)
  return string.match(redis.call('HGET', ledger .. ':pods', pod) or '', '^[^|]*')
end

-- Does the ledger say of each slot what the record says? A reservation whose claim is on its way is no disagreement,
-- nor is a pod that was acknowledged or lost in the record and is still on its way out of the ledger.
local function agrees(pool, uid, claimed, recorded)
  if pool == '' then return 0 end
  local ledger, slot = ARGV[3] .. pool, 0
  while true do
    local by = redis.call('HGET', ledger .. ':by', uid .. '/' .. slot) or ''
    local want, known = claimed[slot + 1] or '', recorded[slot + 1] or ''
    if slot >= #claimed and by == '' then return 1 end
    if want ~= '' then
      if by ~= want then return 0 end
    elseif by ~= '' and by ~= known and state(ledger, by) ~= 'resv' then
      return 0
    end
    slot = slot + 1
  end
end

local out, stars = {}, {}
for i = 4, #ARGV do
  local item = cmsgpack.unpack(ARGV[i])
  local extra = 0
  if ARGV[1] == 'holders' then
    extra = index('holder', item[1])
  elseif ARGV[1] == 'claims' then
    extra = agrees(item[2], item[3], item[4], item[5])
  elseif ARGV[1] == 'stars' then
    local ns = string.match(item[1], '^[^/]*')
    stars[ns] = stars[ns] or index('star', ns)
    extra = stars[ns]
  end
  out[#out + 1] = { redis.call('HGET', KEYS[1], item[1]), extra }
end
return out

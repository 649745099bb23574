-- Library of the mirror's scripts (included by mirror_*_v1.lua and hot_*_v1.lua; no keys of its own).
--
-- Keys of one kind of objects; names are `namespace/name`:
--   osb:m:{kind}:doc            hash  name -> 4 bytes big-endian n, n bytes msgpack [version, uid, indexes, pool], document
--                                     indexes = list of [index, value, score]; pool = `ns/pool` of a pool's pod, else ''
--   osb:m:{kind}:tomb           hash  name -> version of the deletion, while it is above the floor
--   osb:m:{kind}:meta           hash  epoch, boot, floor, synced (= epoch after a finished list), fresh (ms)
--   osb:m:{kind}:ix:{index}:{value}  zset of names
--   osb:m:poolpod:rank          hash  name -> `rank|uid`, present only while the pod may be handed out
-- Rebuilt by: a list of the kind from the API server (osb.store.forward, relist).

local function mirror_boot()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

local function mirror_now()
  local t = redis.call('TIME')
  local ms = t[1] * 1000 + math.floor(t[2] / 1000)
  if OSB_CLOCK then ms = tonumber(redis.call('GET', OSB_CLOCK) or ms) end
  return ms
end

-- Versions are decimal text without leading zeros: longer is larger, then byte order. Lua numbers would lose digits.
local function mirror_newer(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

local function mirror_head(raw)
  if not raw then return nil end
  local n = struct.unpack('>I4', raw)
  local h = cmsgpack.unpack(string.sub(raw, 5, 4 + n))
  return { version = h[1], uid = h[2], indexes = h[3], pool = h[4] }
end

local function mirror_known(meta)
  local m = redis.call('HMGET', meta, 'epoch', 'synced', 'boot')
  return m[1] and m[1] ~= '' and m[1] == m[2] and m[3] == mirror_boot()
end

-- The largest version at which an absent name is known to be dead.
local function mirror_dead(c, name)
  local floor = c.floor
  local tomb = redis.call('HGET', c.tomb, name)
  if tomb and mirror_newer(tomb, floor) then return tomb end
  return floor
end

local function mirror_bury(c, name, version)
  local tomb = redis.call('HGET', c.tomb, name)
  if not tomb or mirror_newer(version, tomb) then redis.call('HSET', c.tomb, name, version) end
end

-- Index entries of `old` that `new` has no longer go, those of `new` are set.
local function mirror_index(c, name, old, new)
  local keep = {}
  for _, ix in ipairs(new) do keep[ix[1] .. ':' .. ix[2]] = ix[3] end
  for _, ix in ipairs(old) do
    local key = ix[1] .. ':' .. ix[2]
    if keep[key] == nil then redis.call('ZREM', c.ix .. key, name) end
    if keep[key] == ix[3] then keep[key] = nil end
  end
  for key, score in pairs(keep) do redis.call('ZADD', c.ix .. key, score, name) end
end

-- Keep the rank and the stock of the owning pool's ledger in step with one pod. `rank` '' = may not be handed out.
local function mirror_stock(c, name, old_pool, pool, uid, rank)
  if old_pool == '' and pool == '' then return end
  if pool == '' then rank = '' end
  local pod = string.match(name, '/(.*)$')
  if old_pool ~= '' and old_pool ~= pool then redis.call('ZREM', c.ledger .. old_pool .. ':avail', pod) end
  if rank == '' then
    redis.call('HDEL', c.rank, name)
    if pool ~= '' then redis.call('ZREM', c.ledger .. pool .. ':avail', pod) end
    return
  end
  redis.call('HSET', c.rank, name, rank .. '|' .. uid)
  local entry = redis.call('HGET', c.ledger .. pool .. ':pods', pod)
  if entry and string.sub(entry, 1, 6 + #uid) == 'free|' .. uid .. '|' then
    redis.call('ZADD', c.ledger .. pool .. ':avail', rank, pod)
  else
    redis.call('ZREM', c.ledger .. pool .. ':avail', pod)
  end
end

local function mirror_remove(c, name, e, version)
  if e then
    redis.call('HDEL', c.doc, name)
    mirror_index(c, name, e.indexes, {})
    mirror_stock(c, name, e.pool, '', '', '')
  end
  mirror_bury(c, name, version)
end

-- HMGET in slices, because `unpack` of a long reply fails.
local function mirror_docs(key, names)
  local out = {}
  for at = 1, #names, 1000 do
    local part = redis.call('HMGET', key, unpack(names, at, math.min(at + 999, #names)))
    for i = 1, #part do out[#out + 1] = part[i] end
  end
  return out
end

-- How far one kind may be trusted: 1 when synced, else 0; and the age in ms, -1 when nothing was ever heard.
local function mirror_trust(meta)
  local fresh = tonumber(redis.call('HGET', meta, 'fresh') or '')
  return mirror_known(meta) and 1 or 0, fresh and math.max(0, mirror_now() - fresh) or -1
end

-- Library of the ledger's scripts (spec/protocols.md 4). Every script that includes it has
-- KEYS[1] osb:q:pool:tok   hash  ns/pool -> token of the run in progress (osb.store.queue)
-- KEYS[2] L:meta    hash  uid, epoch, boot, state (ready, building, lost), builder, seq, and was_uid, was_epoch,
--                         was_boot of the last ready ledger while one is being rebuilt
-- KEYS[3] L:pods    hash  pod -> state|podUID|sandboxUID|sandbox|slot|seq|op|policy; no entry = unknown, never free
-- KEYS[4] L:by      hash  sandboxUID/slot -> pod, of entries in resv, held, rel
-- KEYS[5] L:avail   zset  pod -> rank, of free pods that KEYS[8] has; the mirror's put keeps it in step too
-- KEYS[6] L:todo    zset  pod -> ms since when, of entries in new, resv, rel, dirty, doom, conf
-- KEYS[7] L:count   hash  state -> number of entries
-- KEYS[8] osb:m:poolpod:rank  hash  ns/pod -> rank|podUID (osb.store.mirror)
-- KEYS[9] osb:l:all set   pools that have a ledger
-- with L = osb:l:ns/pool, and
-- ARGV[1] ns/pool   ARGV[2] token   ARGV[3] UID of the Pool   ARGV[4] epoch that the caller saw, or ''
-- Rebuilt by: the records of all live sandboxes and the live pods (osb.reconcile.rebuild); never merged, replaced.

local LEDGER_TODO = { new = 1, resv = 1, rel = 1, dirty = 1, doom = 1, conf = 1 }

local function ledger_boot()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

local function ledger_now()
  local t = redis.call('TIME')
  local ms = t[1] * 1000 + math.floor(t[2] / 1000)
  if OSB_CLOCK then ms = tonumber(redis.call('GET', OSB_CLOCK) or ms) end
  return ms
end

local function ledger_fenced()
  return redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2]
end

-- nil when the caller may change this ledger; else what to answer.
local function ledger_refusal()
  if ledger_fenced() then return { 'fenced' } end
  local m = redis.call('HMGET', KEYS[2], 'uid', 'boot', 'state', 'epoch')
  if m[1] ~= ARGV[3] or m[2] ~= ledger_boot() or m[3] ~= 'ready' then return { 'notready' } end
  if ARGV[4] ~= '' and ARGV[4] ~= m[4] then return { 'notready' } end
  return nil
end

local function ledger_parse(raw)
  if not raw then return nil end
  local state, uid, box_uid, box, slot, seq, op, policy =
    string.match(raw, '^([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$')
  return { state = state, uid = uid, box_uid = box_uid, box = box, slot = slot, seq = seq, op = op, policy = policy }
end

local function ledger_get(pod) return ledger_parse(redis.call('HGET', KEYS[3], pod)) end

local function ledger_stock(pod, e)
  local rank = redis.call('HGET', KEYS[8], string.match(ARGV[1], '^[^/]*/') .. pod)
  if not rank then return end
  local value, uid = string.match(rank, '^([^|]*)|(.*)$')
  if uid == e.uid then redis.call('ZADD', KEYS[5], value, pod) end
end

-- Replace the entry `old` of a pod by `e` (nil: none) and keep everything that is derived from it in step.
local function ledger_set(pod, old, e)
  if old then
    redis.call('HINCRBY', KEYS[7], old.state, -1)
    if old.slot ~= '' and old.slot ~= '-1' then
      local by = old.box_uid .. '/' .. old.slot
      if redis.call('HGET', KEYS[4], by) == pod then redis.call('HDEL', KEYS[4], by) end
    end
  end
  if not e then
    redis.call('HDEL', KEYS[3], pod)
    redis.call('ZREM', KEYS[5], pod)
    redis.call('ZREM', KEYS[6], pod)
    return
  end
  redis.call('HSET', KEYS[3], pod, table.concat(
    { e.state, e.uid, e.box_uid, e.box, e.slot, e.seq, e.op, e.policy }, '|'))
  redis.call('HINCRBY', KEYS[7], e.state, 1)
  if e.slot ~= '-1' then redis.call('HSET', KEYS[4], e.box_uid .. '/' .. e.slot, pod) end
  if e.state == 'free' then ledger_stock(pod, e) else redis.call('ZREM', KEYS[5], pod) end
  if not LEDGER_TODO[e.state] then
    redis.call('ZREM', KEYS[6], pod)
  elseif not old or old.state ~= e.state then
    redis.call('ZADD', KEYS[6], ledger_now(), pod)
  end
end

-- An entry that nobody has; `seq` survives until the pod is clean, because a restart's id is built from it.
local function ledger_nobodys(state, uid, seq)
  return { state = state, uid = uid, box_uid = '', box = '', slot = '-1', seq = seq, op = '', policy = '' }
end

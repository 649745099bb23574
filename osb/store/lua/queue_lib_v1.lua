-- queue_lib_v1: the work queue inside any script. Include with `-- include: queue_lib_v1.lua`.
--
-- A script that uses it must first call q_seed(uuid) with a fresh uuid4 text of its caller: ids of the messages are
-- derived from it (Lua has no randomness). Then:
--
--   q_now()                              ms of Redis' clock, the same all through the call
--   q_add(kind, member, class, deep, reason, deletion, due_ms)
--        kind     'pool', 'batchsandbox', 'snapshot', 'recycle', 'tasks'        member   'namespace/name'
--        class    1 later, 2 now       deep, deletion   true or false            reason   text for people, or ''
--        due_ms   nil: mark dirty and publish a wake-up unless running, blocked or woken;
--                 else: only keep the earliest due time (ms, absolute) and let the run in progress not drop it
--   q_adds(list)                         the wire form of osb.store.queue.wire: a list of
--                                        {kind, member, class, deep 0/1, reason, deletion 0/1, after_ms|-1, at_ms|-1}
--                                        member '*/*' = each that the mirror of the kind has, once in the call;
--                                        of sandboxes only those that wait for the choice of a pool
--   q_publish(kind, member, class, reason)   LPUSH one wake-up message; used by the others, rarely needed alone
--   q_token(kind, member)                the token of the run in progress, or false (for fencing)
--
-- Keys: osb:q:{kind}:* as listed in osb/store/keys.py; Celery's lists osb.{kind}.now|later, osb.recycle, osb.tasks;
-- osb:envelope. OSB_CLOCK and OSB_ENVELOPE are put in front by osb/store/scripts.py. Rebuilt from the cluster: a relist or the sweep adds every key again.

local Q_LEASE, Q_WAKE, Q_CRASHES, Q_QUARANTINE = 12000, 10000, 5, 600000
local Q_STEP, Q_ALLOWANCE, Q_GATE_LIMIT = 100, 1000, 5000

local q_ms = nil
local function q_now()
  if not q_ms then
    local t = redis.call('TIME')
    q_ms = t[1] * 1000 + math.floor(t[2] / 1000)
    if OSB_CLOCK then q_ms = tonumber(redis.call('GET', OSB_CLOCK) or q_ms) end
  end
  return q_ms
end

local q_ids = { seed = false, n = 0 }
local function q_seed(uuid) q_ids.seed = uuid end

local function q_id()
  q_ids.n = q_ids.n + 1
  return string.format('%s%012x', string.sub(q_ids.seed, 1, 24), q_ids.n)
end

local function q_key(kind, part) return 'osb:q:' .. kind .. ':' .. part end

local function q_token(kind, member) return redis.call('HGET', q_key(kind, 'tok'), member) end

-- The message --------------------------------------------------------------------------------------------------

local q_envelope = nil
local function q_template()
  if not q_envelope then
    q_envelope = redis.call('HGET', 'osb:envelope', 'v1') or OSB_ENVELOPE
  end
  return q_envelope
end

local function q_escaped(text) return string.sub(cjson.encode(text), 2, -2) end

local function q_list(kind, class)
  if kind == 'recycle' or kind == 'tasks' then return 'osb.' .. kind end
  return 'osb.' .. kind .. (class == 2 and '.now' or '.later')
end

local function q_publish(kind, member, class, reason)
  local slash = string.find(member, '/', 1, true) or 0
  local ns, name = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  local queue, id = q_list(kind, class), q_id()
  local args = string.format('["%s", "%s", "%s"]', ns, name, q_escaped(reason))
  local values = {
    task = 'osb.reconcile.' .. kind, queue = queue, id = id, tag = q_id(), args = q_escaped(args),
    argsrepr = string.format("['%s', '%s', '%s']", ns, name, q_escaped(reason)),
  }
  redis.call('LPUSH', queue, (string.gsub(q_template(), '<<(%l+)>>', values)))
end

-- Marks --------------------------------------------------------------------------------------------------------

local function q_due(kind, member, at) redis.call('ZADD', q_key(kind, 'due'), 'LT', at, member) end

local function q_dirty(kind, member, class, reason)
  local new = redis.call('ZADD', q_key(kind, 'dirty'), 'NX', q_now(), member) == 1
  if class == 2 then
    redis.call('ZREM', q_key(kind, 'later'), member)
  elseif new then
    redis.call('ZADD', q_key(kind, 'later'), q_now(), member)
  end
  if reason ~= '' and (new or class == 2) then redis.call('HSET', q_key(kind, 'why'), member, reason) end
end

local function q_class(kind, member)
  return redis.call('ZSCORE', q_key(kind, 'later'), member) and 1 or 2
end

local function q_drop_wake(kind, member)
  redis.call('ZREM', q_key(kind, 'wake'), member)
  redis.call('HDEL', q_key(kind, 'wakec'), member)
  redis.call('HDEL', q_key(kind, 'wtry'), member)
end

local function q_wake(kind, member, class, repeats, silent)
  redis.call('ZADD', q_key(kind, 'wake'), q_now() + Q_WAKE * 2 ^ math.min(repeats, 5), member)
  redis.call('HSET', q_key(kind, 'wakec'), member, class)
  if repeats > 0 then
    redis.call('HSET', q_key(kind, 'wtry'), member, repeats)
  else
    redis.call('HDEL', q_key(kind, 'wtry'), member)
  end
  if not silent then q_publish(kind, member, class, redis.call('HGET', q_key(kind, 'why'), member) or '') end
end

-- The time of the next try of a quarantined key, or nil. Further ahead than it can be set: the clock went back.
local function q_blocked(kind, member)
  local at = tonumber(redis.call('ZSCORE', q_key(kind, 'quar'), member) or 0)
  if at > q_now() and at <= q_now() + Q_QUARANTINE then return at end
  return nil
end

-- A dirty key gets its wake-up, unless something else is bound to look at it.
local function q_offer(kind, member, class)
  if redis.call('ZSCORE', q_key(kind, 'run'), member) then return end
  local blocked = q_blocked(kind, member)
  if blocked then return q_due(kind, member, blocked) end
  local woken = redis.call('HGET', q_key(kind, 'wakec'), member)
  if woken and tonumber(woken) >= class then return end
  q_wake(kind, member, class, 0)
end

local function q_add(kind, member, class, deep, reason, deletion, due_ms)
  if deletion then
    redis.call('HDEL', q_key(kind, 'fail'), member)
    redis.call('ZREM', q_key(kind, 'gate'), member)
  end
  if due_ms then
    q_due(kind, member, due_ms)
    redis.call('HDEL', q_key(kind, 'seen'), member)
    return
  end
  q_dirty(kind, member, class, reason)
  if deep then redis.call('SADD', q_key(kind, 'deep'), member) end
  q_offer(kind, member, q_class(kind, member))
end

-- Sandboxes with poolRef '*', in the namespaces that have a pool: elsewhere none could be chosen.
local function q_stars()
  local spaces, found = {}, {}
  for _, pool in ipairs(redis.call('HKEYS', 'osb:m:pool:doc')) do
    local space = string.match(pool, '^[^/]*')
    if not spaces[space] then
      spaces[space] = true
      for _, member in ipairs(redis.call('ZRANGE', 'osb:m:batchsandbox:ix:star:' .. space, 0, -1)) do
        found[#found + 1] = member
      end
    end
  end
  return found
end

-- Many cordoned nodes in one list must not mark every pool as many times.
local q_told = {}
local function q_members(kind, member)
  if member ~= '*/*' then return { member } end
  if q_told[kind] then return {} end
  q_told[kind] = true
  if kind == 'batchsandbox' then return q_stars() end
  return redis.call('HKEYS', 'osb:m:' .. kind .. ':doc')
end

local function q_adds(list)
  for _, a in ipairs(list) do
    local due = nil
    if a[7] >= 0 then due = q_now() + a[7] end
    if a[8] >= 0 then due = math.min(due or a[8], a[8]) end
    for _, member in ipairs(q_members(a[1], a[2])) do
      q_add(a[1], member, a[3], a[4] == 1, a[5], a[6] == 1, due)
    end
  end
end

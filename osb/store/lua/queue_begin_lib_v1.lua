-- queue_begin_lib_v1: start of a run, for scripts that begin and load in one trip. Call q_seed first.
--
--   q_begin(kind, member, token, hand, task_id)
--        -> {state, deep 0/1, waited ms, reason, ms until the pending timer or -1, newly quarantined 0/1}
--   state: run          the lease is taken (12 s); the caller must end it with the same token
--          busy         another live lease; the key stays dirty if it was, its end publishes
--          clean        nothing asks for a run: a repeated or late wake-up
--          early        the allowance against hot loops is used up; stays dirty, its timer brings it back
--          quarantined  too many workers vanished in it; its timer brings it back
--   q_broken(kind, member) -> true when the run's lease ended and this makes the key quarantined
--   q_running(kind, member) -> true when a lease lives
-- include: queue_lib_v1.lua

local function q_running(kind, member)
  local ends = tonumber(redis.call('ZSCORE', q_key(kind, 'run'), member) or 0)
  return ends > q_now() and ends <= q_now() + 2 * Q_LEASE
end

local function q_drop_run(kind, member)
  redis.call('ZREM', q_key(kind, 'run'), member)
  redis.call('HDEL', q_key(kind, 'tok'), member)
  redis.call('SREM', q_key(kind, 'taken'), member)
  redis.call('HDEL', q_key(kind, 'seen'), member)
end

local function q_broken(kind, member)
  q_drop_run(kind, member)
  q_dirty(kind, member, 2, 'its worker vanished')
  redis.call('SADD', q_key(kind, 'deep'), member)
  if redis.call('HINCRBY', q_key(kind, 'crash'), member, 1) < Q_CRASHES then return false end
  local at = q_now() + Q_QUARANTINE
  redis.call('ZADD', q_key(kind, 'quar'), at, member)
  q_due(kind, member, at)
  q_drop_wake(kind, member)
  return true
end

local function q_new_by_hand(kind, task_id)
  return redis.call('SET', q_key(kind, 'hand') .. ':' .. task_id, '1', 'NX', 'EX', 3600)
end

local function q_start(kind, member, token)
  local since = tonumber(redis.call('ZSCORE', q_key(kind, 'dirty'), member))
  local why = redis.call('HGET', q_key(kind, 'why'), member) or ''
  local due = redis.call('ZSCORE', q_key(kind, 'due'), member)
  redis.call('ZREM', q_key(kind, 'dirty'), member)
  redis.call('ZREM', q_key(kind, 'later'), member)
  redis.call('HDEL', q_key(kind, 'why'), member)
  q_drop_wake(kind, member)
  local deep = redis.call('SREM', q_key(kind, 'deep'), member)
  if deep == 1 then redis.call('SADD', q_key(kind, 'taken'), member) end
  if due then redis.call('HSET', q_key(kind, 'seen'), member, due) end
  redis.call('ZADD', q_key(kind, 'run'), q_now() + Q_LEASE, member)
  redis.call('HSET', q_key(kind, 'tok'), member, token)
  return { 'run', deep, math.max(0, q_now() - since), why, due and math.max(0, tonumber(due) - q_now()) or -1, 0 }
end

-- Why a dirty key may not start now, or nil.
local function q_held_back(kind, member)
  local quarantine = q_blocked(kind, member)
  local gate = tonumber(redis.call('ZSCORE', q_key(kind, 'gate'), member) or 0)
  local early = gate > q_now() + Q_ALLOWANCE and gate <= q_now() + Q_GATE_LIMIT
  if not quarantine and not early then return nil end
  q_drop_wake(kind, member)
  q_due(kind, member, quarantine or gate - Q_ALLOWANCE)
  return quarantine and 'quarantined' or 'early'
end

local function q_begin(kind, member, token, hand, task_id)
  if q_token(kind, member) == token then
    redis.call('ZADD', q_key(kind, 'run'), q_now() + Q_LEASE, member)
    local seen = redis.call('HGET', q_key(kind, 'seen'), member)
    local pending = seen and math.max(0, tonumber(seen) - q_now()) or -1
    return { 'run', redis.call('SISMEMBER', q_key(kind, 'taken'), member), 0, '', pending, 0 }
  end
  if hand then hand = q_new_by_hand(kind, task_id) end
  if hand then
    q_dirty(kind, member, 2, 'sent by hand')
    redis.call('SADD', q_key(kind, 'deep'), member)
  end
  if q_running(kind, member) then return { 'busy', 0, 0, '', -1, 0 } end
  if redis.call('ZSCORE', q_key(kind, 'run'), member) and q_broken(kind, member) and not hand then
    return { 'quarantined', 0, 0, '', -1, 1 }
  end
  if not redis.call('ZSCORE', q_key(kind, 'dirty'), member) then return { 'clean', 0, 0, '', -1, 0 } end
  local held_back = not hand and q_held_back(kind, member)
  if held_back then return { held_back, 0, 0, '', -1, 0 } end
  return q_start(kind, member, token)
end

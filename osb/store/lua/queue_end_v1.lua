-- queue_end_v1: end a run and say what comes next.
-- ARGV: 1 uuid4   2 kind   3 member   4 token   5 outcome: done, after, retry, stop, part
--       6 wait ms (after, part, deep again)   7 '1' progress   8 '1' deep again: a full pass is owed
--       9 '1' staying: the caller begins again at once, so a wake-up is marked but not sent
--       10 jitter factor of the back-off (Lua has no dice)
-- Returns {ours 0/1, dirty again 0/1, ms until the timer or -1, failures in a row}. Not ours: nothing was changed.
-- Repeated after a lost reply: the token is gone, so not ours, harmless.
-- include: queue_begin_lib_v1.lua
q_seed(ARGV[1])
local kind, member, outcome, wait = ARGV[2], ARGV[3], ARGV[5], tonumber(ARGV[6])
local progress, deep_again, jitter = ARGV[7] == '1', ARGV[8] == '1', tonumber(ARGV[10])
if q_token(kind, member) ~= ARGV[4] then return { 0, 0, -1, 0 } end

local taken = redis.call('SISMEMBER', q_key(kind, 'taken'), member) == 1
local seen = redis.call('HGET', q_key(kind, 'seen'), member)
q_drop_run(kind, member)
redis.call('HDEL', q_key(kind, 'crash'), member)
redis.call('ZREM', q_key(kind, 'quar'), member)

local function failed()
  local fail = redis.call('HINCRBY', q_key(kind, 'fail'), member, 1)
  q_due(kind, member, q_now() + math.floor(math.min(60000, 500 * 2 ^ math.min(fail - 1, 10)) * jitter))
  return fail
end

local fail = 0
if deep_again or (outcome == 'part' and taken) then redis.call('SADD', q_key(kind, 'deep'), member) end
if outcome ~= 'part' then
  -- A full pass has dealt with the timer that it saw; one set meanwhile stays. A failed one may not have come that
  -- far (an expiry must not wait for the back-off).
  if outcome ~= 'retry' and seen and redis.call('ZSCORE', q_key(kind, 'due'), member) == seen then
    redis.call('ZREM', q_key(kind, 'due'), member)
  end
  if outcome == 'retry' then fail = failed() else redis.call('HDEL', q_key(kind, 'fail'), member) end
end
if outcome == 'after' or redis.call('SISMEMBER', q_key(kind, 'deep'), member) == 1 then
  if outcome == 'after' or outcome == 'part' or deep_again then q_due(kind, member, q_now() + wait) end
end

if progress then
  redis.call('ZREM', q_key(kind, 'gate'), member)
else
  local gate = tonumber(redis.call('ZSCORE', q_key(kind, 'gate'), member) or 0)
  if gate > q_now() + Q_GATE_LIMIT then gate = 0 end
  redis.call('ZADD', q_key(kind, 'gate'), math.max(gate, q_now()) + Q_STEP, member)
end

local again = redis.call('ZSCORE', q_key(kind, 'dirty'), member)
if again then q_wake(kind, member, q_class(kind, member), 0, ARGV[9] == '1') end
local due = redis.call('ZSCORE', q_key(kind, 'due'), member)
return { 1, again and 1 or 0, due and math.max(0, tonumber(due) - q_now()) or -1, fail }

-- End a rebuild: the given entries (and those put aside by ledger_stage_v1) replace everything; ready.
-- KEYS, ARGV[1..3] as in ledger_lib_v1   KEYS[10] L:new
-- ARGV[4] epoch   ARGV[5] 1 = take up L:new   ARGV[6] smallest seq to go on from   then two per entry: pod, text
-- Returns {ok} (also when the same commit was already made) | {fenced} | {refused}.
-- Rebuilt by: see ledger_lib_v1.

-- include: ledger_lib_v1.lua

if ledger_fenced() then return { 'fenced' } end
local m = redis.call('HMGET', KEYS[2], 'uid', 'epoch', 'boot', 'state', 'builder', 'seq')
if m[1] ~= ARGV[3] or m[2] ~= ARGV[4] or m[3] ~= ledger_boot() or m[5] ~= ARGV[2] then return { 'refused' } end
if m[4] == 'ready' then return { 'ok' } end
if m[4] ~= 'building' then return { 'refused' } end

redis.call('DEL', KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
if ARGV[5] == '1' then
  if redis.call('EXISTS', KEYS[10]) == 1 then redis.call('RENAME', KEYS[10], KEYS[3]) end
else
  redis.call('DEL', KEYS[10])
end
for i = 7, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end

local seq, counts, now = math.max(tonumber(m[6] or '0'), tonumber(ARGV[6])), {}, ledger_now()
local all = redis.call('HGETALL', KEYS[3])
for i = 1, #all, 2 do
  local pod, e = all[i], ledger_parse(all[i + 1])
  counts[e.state] = (counts[e.state] or 0) + 1
  seq = math.max(seq, tonumber(e.seq))
  if e.slot ~= '-1' then redis.call('HSET', KEYS[4], e.box_uid .. '/' .. e.slot, pod) end
  if e.state == 'free' then ledger_stock(pod, e) end
  if LEDGER_TODO[e.state] then redis.call('ZADD', KEYS[6], now, pod) end
end
for state, n in pairs(counts) do redis.call('HSET', KEYS[7], state, n) end
redis.call('HSET', KEYS[2], 'state', 'ready', 'seq', string.format('%.0f', seq))
redis.call('HDEL', KEYS[2], 'was_uid', 'was_epoch', 'was_boot')
return { 'ok' }

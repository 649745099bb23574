-- Put aside one part of a rebuilt ledger that is too large for one commit.
-- KEYS, ARGV[1..3] as in ledger_lib_v1   KEYS[10] L:new (hash, as L:pods; deleted by commit or the next first part)
-- ARGV[4] epoch   ARGV[5] 1 = first part   then two per entry: pod, text
-- Returns {ok} | {fenced} | {refused}.
-- Rebuilt by: see ledger_lib_v1.

-- include: ledger_lib_v1.lua

if ledger_fenced() then return { 'fenced' } end
local m = redis.call('HMGET', KEYS[2], 'uid', 'epoch', 'boot', 'state', 'builder')
if m[1] ~= ARGV[3] or m[2] ~= ARGV[4] or m[3] ~= ledger_boot() or m[4] ~= 'building' or m[5] ~= ARGV[2] then
  return { 'refused' }
end
if ARGV[5] == '1' then redis.call('DEL', KEYS[10]) end
for i = 6, #ARGV, 2 do redis.call('HSET', KEYS[10], ARGV[i], ARGV[i + 1]) end
return { 'ok' }

-- Forget the ledger of a pool that a live read confirmed to be gone.
-- KEYS as in ledger_lib_v1   KEYS[10] L:new   ARGV[1] ns/pool   ARGV[2] token, or '' = no run   ARGV[3] UID
-- Returns {ok} | {other} (the ledger is of another UID: left alone) | {fenced}.
-- Rebuilt by: see ledger_lib_v1.

-- include: ledger_lib_v1.lua

if ARGV[2] ~= '' and ledger_fenced() then return { 'fenced' } end
if redis.call('HGET', KEYS[2], 'uid') ~= ARGV[3] then return { 'other' } end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[10])
redis.call('SREM', KEYS[9], ARGV[1])
return { 'ok' }

-- Begin a rebuild: nothing is served from this ledger until its commit. The Pool's UID must have been read live.
-- KEYS, ARGV[1..3] as in ledger_lib_v1   ARGV[4] the new epoch
-- Returns {ok, uid, epoch, boot, seq of the last ready ledger ('' = there was none), [pod, entry...]} | {fenced}.
-- Rebuilt by: see ledger_lib_v1.

-- include: ledger_lib_v1.lua

if ledger_fenced() then return { 'fenced' } end
local m = redis.call('HMGET', KEYS[2], 'state', 'uid', 'epoch', 'boot', 'was_uid', 'was_epoch', 'was_boot', 'seq')
local uid, epoch, boot = m[2] or '', m[3] or '', m[4] or ''
if m[1] == 'building' then -- an earlier rebuild did not get to its end: what counts is what was there before it
  uid, epoch, boot = m[5] or '', m[6] or '', m[7] or ''
elseif m[1] ~= 'ready' then
  uid, epoch, boot = '', '', ''
end
redis.call('HSET', KEYS[2], 'uid', ARGV[3], 'epoch', ARGV[4], 'boot', ledger_boot(), 'state', 'building',
  'builder', ARGV[2], 'was_uid', uid, 'was_epoch', epoch, 'was_boot', boot)
redis.call('SADD', KEYS[9], ARGV[1])
return { 'ok', uid, epoch, boot, m[8] or '0', redis.call('HGETALL', KEYS[3]) }

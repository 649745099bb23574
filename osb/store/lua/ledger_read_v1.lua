-- One consistent look at a ledger.
-- KEYS as in ledger_lib_v1   ARGV[1] ns/pool   ARGV[2] `entries` for all entries, or ''
-- Returns {boot of this Redis, [meta], [count], [todo pod, since...], [pod, entry...]}.
-- Rebuilt by: nothing is written.

local boot = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
return {
  boot, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[7]),
  redis.call('ZRANGE', KEYS[6], 0, -1, 'WITHSCORES'),
  ARGV[2] == 'entries' and redis.call('HGETALL', KEYS[3]) or {},
}

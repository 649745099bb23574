-- duty_slot_v1: one process takes each time slot of a periodic duty, once; slots that were missed are not made up for.
-- KEYS: 1 osb:slot:{name} (string: number of the last slot taken; TTL)      ARGV: 1 slot number   2 TTL ms
-- Returns 1 taken, 0 this slot or a later one was taken before. Lost with Redis: one slot may then run twice.
local last = tonumber(redis.call('GET', KEYS[1]) or '-1')
if last >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1

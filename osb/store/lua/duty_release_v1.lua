-- duty_release_v1: give a duty up, if it is ours.
-- KEYS: 1 osb:duty:{name}      ARGV: 1 owner      Returns 1 released, 0 it was not ours (any more).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])

-- stamp_set_v1: note that something was alive just now, by Redis' clock.
-- KEYS: 1 the stamp (string: 'ms text'; TTL)      ARGV: 1 text   2 TTL ms      Returns the ms.
-- include: queue_lib_v1.lua
redis.call('SET', KEYS[1], string.format('%.0f %s', q_now(), ARGV[1]), 'PX', ARGV[2])
return q_now()

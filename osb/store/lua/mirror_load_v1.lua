-- Read the objects of one index entry, in the order of the index, with the mark of mirror_read_v1.
-- KEYS[1] osb:m:{kind}:doc   KEYS[2] osb:m:{kind}:ix:{index}:{value}   KEYS[3] osb:m:{kind}:meta
-- ARGV[1] first   ARGV[2] last position (-1 = all)
-- Returns {known, age, names, values}.
-- Rebuilt by: see mirror_lib_v1.

-- include: mirror_lib_v1.lua

local known, age = mirror_trust(KEYS[3])
local names = redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[2])
return { known, age, names, mirror_docs(KEYS[1], names) }

-- Read the objects of one index entry, in the order of the index, with the mark of mirror_read_v1.
-- KEYS[1] osb:m:{kind}:doc   KEYS[2] osb:m:{kind}:ix:{index}:{value}   KEYS[3..] metas
-- ARGV[1] first   ARGV[2] last position (-1 = all)
-- Returns {known, age, names, values}.
-- Rebuilt by: see mirror_lib_v1.

-- include: mirror_lib_v1.lua

local metas = {}
for i = 3, #KEYS do metas[#metas + 1] = KEYS[i] end
local trust = mirror_trust(metas)
local names = redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[2])
return { trust[1], trust[2], names, mirror_docs(KEYS[1], names) }

-- Read objects of one kind together with the mark that says whether an absence means anything.
-- KEYS[1] osb:m:{kind}:doc   KEYS[2] osb:m:{kind}:meta   ARGV names
-- Returns {known 0|1, age in ms or -1, value or false...} in the order of the names.
-- Rebuilt by: see mirror_lib_v1.

-- include: mirror_lib_v1.lua

local out = { mirror_trust(KEYS[2]) }
for _, value in ipairs(mirror_docs(KEYS[1], ARGV)) do out[#out + 1] = value end
return out

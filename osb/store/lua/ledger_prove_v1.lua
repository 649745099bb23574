-- Prove, after a version was read and before it is used in a write, that the run is current and entries stand.
-- KEYS, ARGV[1..4] as in ledger_lib_v1; then four per entry: pod, pod UID, state, sandbox UID (none: only the run)
-- Returns {ok, 1|0...} | {fenced} | {notready}.
-- Rebuilt by: nothing is written.

-- include: ledger_lib_v1.lua

local refusal = ledger_refusal()
if refusal then return refusal end
local out = { 'ok' }
for i = 5, #ARGV, 4 do
  local e = ledger_get(ARGV[i])
  local as = e and e.uid == ARGV[i + 1] and e.state == ARGV[i + 2] and e.box_uid == ARGV[i + 3]
  out[#out + 1] = as and 1 or 0
end
return out

-- Note the names of pods before their POST, as long as the pool stays within its maximum (terminating ones count).
-- KEYS, ARGV[1..4] as in ledger_lib_v1   ARGV[5] maximum of entries   then names
-- Returns {ok} (all noted, also by an earlier call) | {full} | {exists} | {fenced} | {notready}; all or nothing.
-- Rebuilt by: see ledger_lib_v1.

-- include: ledger_lib_v1.lua

local refusal = ledger_refusal()
if refusal then return refusal end
local fresh, seen = {}, {}
for i = 6, #ARGV do
  local e = ledger_get(ARGV[i])
  if e and e.state ~= 'new' then return { 'exists' } end
  if not e and not seen[ARGV[i]] then fresh[#fresh + 1] = ARGV[i] end
  seen[ARGV[i]] = true
end
if #fresh > 0 and redis.call('HLEN', KEYS[3]) + #fresh > tonumber(ARGV[5]) then return { 'full' } end
for _, pod in ipairs(fresh) do ledger_set(pod, nil, ledger_nobodys('new', '', '0')) end
return { 'ok' }

-- Promise exactly the named free pods to exactly these slots, or change nothing.
-- KEYS, ARGV[1..4] as in ledger_lib_v1   ARGV[5] op, text unique to this attempt
-- then five per grant: pod, pod UID, sandbox UID, sandbox, slot
-- Returns {ok, seq...} in the order of the grants (also when the same call was already carried out: its answer was
-- lost) | {taken, pods that are not free for it, `sandboxUID/slot` that have a pod} | {fenced} | {notready}.
-- Rebuilt by: see ledger_lib_v1.

-- include: ledger_lib_v1.lua

local refusal = ledger_refusal()
if refusal then return refusal end

local op, grants, taken, slots = ARGV[5], {}, {}, {}
local pods_seen, slots_seen = {}, {}
for i = 6, #ARGV, 5 do
  local pod, uid, by = ARGV[i], ARGV[i + 1], ARGV[i + 2] .. '/' .. ARGV[i + 4]
  local e = ledger_get(pod)
  local mine = e and e.state == 'resv' and e.op == op and e.uid == uid and e.box_uid .. '/' .. e.slot == by
  if not mine then
    if not e or e.state ~= 'free' or e.uid ~= uid or pods_seen[pod] then taken[#taken + 1] = pod end
    if redis.call('HGET', KEYS[4], by) or slots_seen[by] then slots[#slots + 1] = by end
  end
  pods_seen[pod], slots_seen[by] = true, true
  grants[#grants + 1] = { pod = pod, old = e, mine = mine, at = i }
end
if #taken > 0 or #slots > 0 then return { 'taken', taken, slots } end

local out = { 'ok' }
for _, g in ipairs(grants) do
  if not g.mine then
    g.seq = redis.call('HINCRBY', KEYS[2], 'seq', 1)
    ledger_set(g.pod, g.old, { state = 'resv', uid = ARGV[g.at + 1], box_uid = ARGV[g.at + 2], box = ARGV[g.at + 3],
      slot = ARGV[g.at + 4], seq = g.seq, op = op, policy = '' })
  end
  out[#out + 1] = g.mine and tonumber(g.old.seq) or g.seq
end
return out

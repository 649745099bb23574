-- Move entries from state to state, each for itself; an entry that is not exactly as named stays as it is.
-- KEYS, ARGV[1..4] as in ledger_lib_v1
-- then seven per move: what, pod, pod UID, from, sandbox UID, to, policy ('' where the move has no use for it)
-- Returns {ok, 1|0...} in the order of the moves | {fenced} | {notready}.
-- Rebuilt by: see ledger_lib_v1.

-- include: ledger_lib_v1.lua

local refusal = ledger_refusal()
if refusal then return refusal end

-- what -> from -> to. '-' = no entry, '*' = any state.
local TABLE = {
  settle = { resv = { held = 1 } },
  cancel = { resv = { free = 1, dirty = 1 } },
  release = { held = { rel = 1 } },
  repin = { rel = { rel = 1 } },
  recycled = { rel = { free = 1 }, dirty = { free = 1 } },
  doom = { free = { doom = 1 }, dirty = { doom = 1 }, rel = { doom = 1 } },
  lost = { ['*'] = { ['-'] = 1 } },
  gone = { ['*'] = { ['-'] = 1 } },
  born = { new = { free = 1 } },
  conf = { conf = { dirty = 1 } },
  orphan = { ['-'] = { dirty = 1 } },
}

local function as_named(e, m)
  if m.from == '-' then return not e end
  if not e or e.state ~= m.from or e.box_uid ~= m.box_uid then return false end
  return e.uid == m.uid or (m.from == 'new' and e.uid == '')
end

local function result(e, m)
  if m.to == '-' then return nil end
  local seq = (e and m.to ~= 'free') and e.seq or '0'
  local new = ledger_nobodys(m.to, m.uid, seq)
  if m.to == 'held' or m.to == 'rel' or (m.to == 'doom' and m.from == 'rel') then
    new.box_uid, new.box, new.slot, new.op, new.policy = e.box_uid, e.box, e.slot, e.op, e.policy
  end
  if m.to == 'rel' then new.policy = m.policy end
  return new
end

local out = { 'ok' }
for i = 5, #ARGV, 7 do
  local m = { what = ARGV[i], pod = ARGV[i + 1], uid = ARGV[i + 2], from = ARGV[i + 3], box_uid = ARGV[i + 4],
    to = ARGV[i + 5], policy = ARGV[i + 6] }
  local row = TABLE[m.what]
  local targets = row and (row[m.from] or (m.from ~= '-' and row['*']))
  local e = ledger_get(m.pod)
  if targets and targets[m.to] and as_named(e, m) then
    ledger_set(m.pod, e, result(e, m))
    out[#out + 1] = 1
  else
    out[#out + 1] = 0
  end
end
return out

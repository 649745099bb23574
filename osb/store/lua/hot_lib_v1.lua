-- Library of the two hot loads: all that a fast pass of one pool decides on, in one look.
--
--   hot_load(member, waiters, pods) -> {
--     {known 0|1, worst age in ms or -1} of the mirror (pools, sandboxes, pool pods),
--     value of the Pool or false, length of the line, [name...], [value...] of its first `waiters`,
--     size of the stock, [pod, rank...], [value...] of its first pods,
--     boot, [meta...], [count...] of the ledger, pods with unfinished business }
-- Pods: as many as the waiters seem to ask for (the first `replicas` in their text, which is a hint and no more) and a
-- few to spare, at most `pods`; the pass asks for the rest if it needs more.
-- Keys: those of mirror_lib_v1, ledger_lib_v1. Rebuilt by: nothing is written.
-- include: mirror_lib_v1.lua

local HOT_SPARE = 8

local function hot_trust()
  local known, age = 1, 0
  for _, kind in ipairs({ 'pool', 'batchsandbox', 'poolpod' }) do
    local k, a = mirror_trust('osb:m:' .. kind .. ':meta')
    known = math.min(known, k)
    if a < 0 or age < 0 then age = -1 else age = math.max(age, a) end
  end
  return { known, age }
end

local function hot_demand(values, pods)
  local n = HOT_SPARE
  for _, value in ipairs(values) do
    n = n + (value and tonumber(string.match(value, '"replicas":(%d+)') or '1') or 0)
  end
  return math.min(n, pods)
end

local function hot_load(member, waiters, pods)
  local ledger, line = 'osb:l:' .. member, 'osb:m:batchsandbox:ix:wait:' .. member
  local names, stock, docs = {}, {}, {}
  if waiters > 0 then names = redis.call('ZRANGE', line, 0, waiters - 1) end
  local values = mirror_docs('osb:m:batchsandbox:doc', names)
  local wanted = #names > 0 and hot_demand(values, pods) or 0
  if wanted > 0 then
    stock = redis.call('ZRANGE', ledger .. ':avail', 0, wanted - 1, 'WITHSCORES')
    local ns = string.match(member, '^[^/]*/')
    local members = {}
    for i = 1, #stock, 2 do members[#members + 1] = ns .. stock[i] end
    docs = mirror_docs('osb:m:poolpod:doc', members)
  end
  return {
    hot_trust(), redis.call('HGET', 'osb:m:pool:doc', member),
    redis.call('ZCARD', line), names, values,
    redis.call('ZCARD', ledger .. ':avail'), stock, docs,
    mirror_boot(), redis.call('HGETALL', ledger .. ':meta'), redis.call('HGETALL', ledger .. ':count'),
    redis.call('ZCARD', ledger .. ':todo'),
  }
end

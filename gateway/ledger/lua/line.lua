-- A ledger line, and what goes with it: the key's sum and the marker that the call is settled.

local MARKER_MS = '86400000'  -- a settled marker outlives every replay but a very late one, see settle.lua

local function write_line(A, rid, kind, amount, meta)  -- changes the balance and says so; settle.lua does it for many
  redis.call('HINCRBY', A, 'bal', amount)
  local bal = redis.call('HGET', A, 'bal')  -- as text: far below zero the number HINCRBY answers is not exact in Lua
  local n = redis.call('HINCRBY', A, 'seq', 1)
  local id = redis.call('XADD', A .. ':lg', '*', 'n', n, 'rid', rid, 'kind', kind, 'amount', amount,
                        'bal', bal, 'meta', meta)
  return bal, id
end

local function spend(A, kid, amount)  -- amount: a ledger amount, so negative for a charge
  if amount == '0' then return end
  local spent = string.sub(amount, 1, 1) == '-' and string.sub(amount, 2) or '-' .. amount
  redis.call('HINCRBY', A .. ':k:' .. kid, 'spent', spent)
end

local function mark(A, rid, kind, amount, id)
  redis.call('SET', A .. ':st:' .. rid, kind .. ' ' .. amount .. ' ' .. id, 'PX', MARKER_MS)
end

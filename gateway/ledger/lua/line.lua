-- Writes a ledger line, the key's sum, and the marker of a settled call.

local MARKER_MS = '86400000'  -- the marker outlives every replay except a very late one, see settle.lua

local function write_line(A, rid, kind, amount, meta)  -- also changes the balance; settle.lua does it for a batch
  redis.call('HINCRBY', A, 'bal', amount)
  local bal = redis.call('HGET', A, 'bal')  -- as text: far below zero the reply of HINCRBY is not exact in Lua
  local n = redis.call('HINCRBY', A, 'seq', 1)
  local id = redis.call('XADD', A .. ':lg', '*', 'n', n, 'rid', rid, 'kind', kind, 'amount', amount,
                        'bal', bal, 'meta', meta)
  return bal, id
end

local function spend(A, kid, amount)  -- amount: a ledger amount, negative for a charge
  if amount == '0' then return end
  local spent = string.sub(amount, 1, 1) == '-' and string.sub(amount, 2) or '-' .. amount
  redis.call('HINCRBY', A .. ':k:' .. kid, 'spent', spent)
end

local function mark(A, rid, kind, amount, id)
  redis.call('SET', A .. ':st:' .. rid, kind .. ' ' .. amount .. ' ' .. id, 'PX', MARKER_MS)
end

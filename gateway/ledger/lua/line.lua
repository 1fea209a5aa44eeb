-- Writes a ledger line, and the marker of a settled call.

-- The fields that few lines have. uncollected: nano-units of the cost that could not be charged; late: the store lost the
-- hold before the settlement.
local function extra_fields(uncollected, late)
  local fields = {}
  if uncollected and uncollected ~= 0 then fields = { 'uncollected', string.format('%.0f', uncollected) } end
  if late then fields[#fields + 1], fields[#fields + 2] = 'late', '1' end
  return fields
end

local MARKER_MS = '86400000'  -- the marker outlives every replay except a very late one, see settle.lua

local function write_line(A, rid, kind, amount, meta, uncollected)  -- also changes the balance; settle.lua: for a batch
  redis.call('HINCRBY', A, 'bal', amount)
  local bal = redis.call('HGET', A, 'bal')  -- as text: far below zero the reply of HINCRBY is not exact in Lua
  local n = redis.call('HINCRBY', A, 'seq', 1)
  local id = redis.call('XADD', A .. ':lg', '*', 'n', n, 'rid', rid, 'kind', kind, 'amount', amount,
                        'bal', bal, 'meta', meta, unpack(extra_fields(uncollected)))
  return bal, id
end

local function mark(A, rid, kind, amount, id)
  redis.call('SET', A .. ':st:' .. rid, kind .. ' ' .. amount .. ' ' .. id, 'PX', MARKER_MS)
end

-- A hold's record in {a:…}:rv is one line of text: used amount tokens ktpm atpm flags kid at note.
-- used: nano-units at the last checkpoint; ktpm, atpm: token limits the estimate was charged to (0: none);
-- flags: k and a mark concurrency leases of key and account, b marks a key with a budget, - is a filler;
-- note: a JSON object that becomes the meta of the ledger line if the hold has to be reclaimed.
-- Amounts stay text from end to end; as doubles they are only compared (every amount is below 2^53).

local MARKER_MS = '86400000'  -- a settled marker outlives every replay but a very late one, see settle.lua

local function read_hold(text)
  local used, amount, tokens, ktpm, atpm, flags, kid, at, note =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%d+) (.*)$')
  return { used = used, amount = amount, tokens = tonumber(tokens), ktpm = tonumber(ktpm), atpm = tonumber(atpm),
           flags = flags, kid = kid, at = at, note = note }
end

local function has(hold, flag) return string.find(hold.flags, flag, 1, true) ~= nil end

local function release(A, rid, hold)  -- frees money and leases, but not the record itself
  if hold.amount ~= '0' then
    redis.call('HINCRBY', A, 'held', '-' .. hold.amount)
    if has(hold, 'b') then redis.call('HINCRBY', A .. ':k:' .. hold.kid, 'held', '-' .. hold.amount) end
  end
  if has(hold, 'k') then redis.call('ZREM', A .. ':cc:' .. hold.kid, rid) end
  if has(hold, 'a') then redis.call('ZREM', A .. ':cc', rid) end
end

local function write_line(A, rid, kind, amount, meta)  -- changes the balance and says so, in one place only
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

-- Expired holds are charged at their last checkpoint: never the full hold, never zero once something was delivered.
local function reclaim(A, now, most)
  local due = redis.call('ZRANGEBYSCORE', A .. ':rx', '-inf', now, 'LIMIT', 0, most)
  for _, rid in ipairs(due) do
    local text = redis.call('HGET', A .. ':rv', rid)
    if text then
      local hold = read_hold(text)
      local amount = hold.used == '0' and '0' or '-' .. hold.used
      release(A, rid, hold)
      local _, id = write_line(A, rid, 'reclaim', amount, hold.note)
      spend(A, hold.kid, amount)
      mark(A, rid, 'reclaim', amount, id)
      redis.call('HDEL', A .. ':rv', rid)
    end
    redis.call('ZREM', A .. ':rx', rid)
  end
  return #due
end

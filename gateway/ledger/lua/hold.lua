-- A hold's record in {a:…}:rv is one line of text: used amount tokens ktpm atpm flags kid at note.
-- used: nano-units at the last checkpoint; ktpm, atpm: the token limits that count the estimate (0: none);
-- flags: k and a are concurrency leases of key and account, b is a key with a budget, p a budget
-- with periods, u is a key with a user, s is a session with a budget, - is always there;
-- note: a JSON object that becomes the meta of the ledger line if the hold is reclaimed.
-- Amounts are always text. Only comparisons use them as doubles (every amount is below 2^53).

local function read_hold(text)
  local used, amount, tokens, ktpm, atpm, flags, kid, at, note =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%d+) (.*)$')
  return { used = used, amount = amount, tokens = tonumber(tokens), ktpm = tonumber(ktpm), atpm = tonumber(atpm),
           flags = flags, kid = kid, at = at, note = note }
end

local function has(hold, flag) return string.find(hold.flags, flag, 1, true) ~= nil end

-- Releases money and leases, not the record; settle.lua does the same for a batch. session: see session_held.
local function release(A, rid, hold, session)
  if hold.amount ~= '0' then
    redis.call('HINCRBY', A, 'held', '-' .. hold.amount)
    if has(hold, 'b') then redis.call('HINCRBY', A .. ':k:' .. hold.kid, 'held', '-' .. hold.amount) end
    local member = has(hold, 'u') and member_of(A, hold.kid)
    if member then redis.call('HINCRBY', member, 'held', '-' .. hold.amount) end
    if session then redis.call('HINCRBY', session, 'held', '-' .. hold.amount) end
  end
  if has(hold, 'k') then redis.call('ZREM', A .. ':cc:' .. hold.kid, rid) end
  if has(hold, 'a') then redis.call('ZREM', A .. ':cc', rid) end
end

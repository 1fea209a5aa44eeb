-- Increases one hold. It compares and sets the amount, so a repeated command increases the hold once.
-- KEYS: {a:<account>}   ARGV: rid from to more   (more = to - from, computed by the caller in exact integers)
-- Returns OK, GONE (no such hold), FUNDS, BUDGET, REVOKED, RACED (the amount is neither `from` nor `to`)
-- SPENT (the cap of the month), COSTLY (the most of one call), MEMBER (the budget of the key's user) or SESSION.

local OK, GONE, FUNDS, BUDGET, REVOKED, RACED, SPENT, COSTLY, MEMBER, SESSION = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9

local A, rid, from, to, more = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local clock = redis.call('TIME')
local text = redis.call('HGET', A .. ':rv', rid)
if not text then return GONE end
local hold = read_hold(text)
if hold.amount == to then return OK end
if hold.amount ~= from then return RACED end

local key = redis.call('HMGET', A .. ':k:' .. hold.kid, 'state', 'exp', 'cap', 'spent', 'held',
                       'every', 'period', 'base', 'max')
local account = redis.call('HMGET', A, 'state', 'bal', 'held', 'floor', 'own')
if account[1] ~= 'active' or key[1] ~= 'active' or (key[2] and tonumber(key[2]) <= tonumber(clock[1])) then
  return REVOKED
end
local budgeted = has(hold, 'b')
if key[9] and tonumber(to) > tonumber(key[9]) then return COSTLY end
if budgeted and key[3] then
  local spent = tonumber(key[4] or '0')
  local most = tonumber(key[3]) + budget_base(key[6], key[7], key[8], spent, clock[1])
  if spent + tonumber(key[5] or '0') + tonumber(more) > most then return BUDGET end
end
local member = has(hold, 'u') and member_of(A, hold.kid)
local left = member and budget_left(member)
if left and left < tonumber(more) then return MEMBER end
local session = session_held(A, text)
left = session and session_left(A, A .. ':k:' .. hold.kid, session)
if left and left < tonumber(more) then return SESSION end
local bal, floor = tonumber(account[2]), tonumber(account[4] or '0')
local free = bal - tonumber(account[3]) - tonumber(more)
if free < floor then return FUNDS end
if account[5] and free < lowest_balance(A, bal, floor, clock[1]) then return SPENT end

redis.call('HINCRBY', A, 'held', more)
if budgeted then redis.call('HINCRBY', A .. ':k:' .. hold.kid, 'held', more) end
if member then redis.call('HINCRBY', member, 'held', more) end
if session then redis.call('HINCRBY', session, 'held', more) end
redis.call('HSET', A .. ':rv', rid, hold.used .. ' ' .. to .. string.sub(text, #hold.used + 2 + #from))
return OK

-- What a call may be charged beyond its hold: money that neither another call nor this one holds.
-- left: the account's balance less its floor and all its holds; changed: the growth of the key's spent and held that is
-- not written yet; unheld: the amount of the hold when it is not part of the key's held. Amounts are nano-units.

local function room_beyond(A, kid, left, changed, unheld)
  local key = redis.call('HMGET', A .. ':k:' .. kid, 'cap', 'spent', 'held', 'every', 'period', 'base')
  if key[1] then
    local spent = tonumber(key[2] or '0')
    local most = tonumber(key[1]) + budget_base(key[4], key[5], key[6], spent, redis.call('TIME')[1])
    left = math.min(left, most - spent - tonumber(key[3] or '0') - changed - unheld)
  end
  return math.max(0, left)
end

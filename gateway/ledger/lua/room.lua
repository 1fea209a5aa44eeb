-- What a call may be charged beyond its hold: money that neither another call nor this one holds.

local function budget_left(name)  -- what is left of the budget in a hash, less all holds; nil without a budget
  local own = redis.call('HMGET', name, 'cap', 'spent', 'held', 'every', 'period', 'base')
  if not own[1] then return nil end
  local spent = tonumber(own[2] or '0')
  local most = tonumber(own[1]) + budget_base(own[4], own[5], own[6], spent, redis.call('TIME')[1])
  return most - spent - tonumber(own[3] or '0')
end

-- left: the account's balance less its floor and all its holds; key, member: names of hashes, member may be nil; taken,
-- apart: what their budgets lack because it is not written to these hashes: the growth of spent and held in this script,
-- and the hold of the call if it is not part of held. Amounts are nano-units.
local function room_beyond(left, key, taken, member, apart)
  local of_key = budget_left(key)
  if of_key then left = math.min(left, of_key - taken) end
  local of_member = member and budget_left(member)
  if of_member then left = math.min(left, of_member - apart) end
  return math.max(0, left)
end

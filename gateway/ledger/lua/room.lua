-- What a call may be charged beyond its hold: money that neither another call nor this one holds.

local function budget_left(name)  -- what is left of the budget in a hash, less all holds; nil without a budget
  local own = redis.call('HMGET', name, 'cap', 'spent', 'held', 'every', 'period', 'base')
  if not own[1] then return nil end
  local spent = tonumber(own[2] or '0')
  local most = tonumber(own[1]) + budget_base(own[4], own[5], own[6], spent, redis.call('TIME')[1])
  return most - spent - tonumber(own[3] or '0')
end

-- A: the account. left: the account's balance less its floor and all its holds; key, member: names of hashes, member may be nil; taken,
-- apart: what their budgets lack because it is not written to these hashes: the growth of spent and held in this script,
-- and the hold of the call if it is not part of held. session: the name of a hash or nil; beside: the same for it. Amounts
-- are nano-units.
local function room_beyond(A, left, key, taken, member, apart, session, beside)
  local of_key = budget_left(key)
  if of_key then left = math.min(left, of_key - taken) end
  local of_member = member and budget_left(member)
  if of_member then left = math.min(left, of_member - apart) end
  local of_session = session and session_left(A, key, session)
  if of_session then left = math.min(left, of_session - beside) end
  return math.max(0, left)
end

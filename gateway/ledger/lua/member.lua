-- A key may belong to a user, who is a member of the account. {a:<account>}:u:<user> has what all keys of the member have
-- spent and hold, and the member's budget, in the fields of a key: cap, spent, held, every, period, base.

local function member_of(A, kid)  -- the name of that hash; nil for a key without a user
  local user = redis.call('HGET', A .. ':k:' .. kid, 'user')
  return user and A .. ':u:' .. user or nil
end

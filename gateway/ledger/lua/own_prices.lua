-- Reads the prices that an account has of its own, at one moment.
-- KEYS: {a:<account>}
-- Returns the group, the epoch of the prices, and model, text, … Group and epoch are '' if there are none.

local A, own = KEYS[1], {}
local account = redis.call('HMGET', A, 'group', 'pe')
if account[2] then
  local fields = redis.call('HGETALL', A)
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == 'p:' then
      own[#own + 1], own[#own + 2] = string.sub(fields[i], 3), fields[i + 1]
    end
  end
end
return { account[1] or '', account[2] or '', own }

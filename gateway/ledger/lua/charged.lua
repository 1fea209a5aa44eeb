-- Counts charges and credits for calls in what keys have spent and in the months of accounts with a cap.

local function count_month(A, change, seconds)  -- change: nano-units, negative if money is given back
  local own = redis.pcall('HMGET', A, 'mcap', 'month', 'mspent')
  if own.err or not own[1] then return end
  local spent = math.max(0, month_spent(own[2], own[3], seconds) + change)
  redis.pcall('HSET', A, 'month', period_of('month', seconds), 'mspent', string.format('%.0f', spent))
end

local function begin_period(name, change, seconds)  -- before `change` is added to what the key has spent
  local key = redis.pcall('HMGET', name, 'every', 'period', 'base', 'spent')
  if key.err or not key[1] then return end
  local period, spent = period_of(key[1], seconds), key[4] or '0'
  local base = key[2] == period and key[3] or spent
  local after = tonumber(spent) + change
  if after < tonumber(base) then base = string.format('%.0f', after) end  -- a period is never below nothing
  redis.pcall('HSET', name, 'period', period, 'base', base)
end

local function spend(A, kid, amount, seconds)  -- amount: a ledger amount, negative for a charge
  if amount == '0' then return end
  local spent = string.sub(amount, 1, 1) == '-' and string.sub(amount, 2) or '-' .. amount
  begin_period(A .. ':k:' .. kid, tonumber(spent), seconds)
  redis.call('HINCRBY', A .. ':k:' .. kid, 'spent', spent)
  count_month(A, tonumber(spent), seconds)
end

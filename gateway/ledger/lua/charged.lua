-- Counts charges and credits for calls in what keys and members have spent, and in the months of accounts with a cap.

local function count_month(A, change, seconds)  -- change: nano-units, negative if money is given back
  local own = redis.pcall('HMGET', A, 'mcap', 'month', 'mspent')
  if own.err or not own[1] then return end
  local spent = math.max(0, month_spent(own[2], own[3], seconds) + change)
  redis.pcall('HSET', A, 'month', period_of('month', seconds), 'mspent', string.format('%.0f', spent))
end

local function begin_period(name, change, seconds)  -- before `change` is added to `spent` in the hash of a key or a member
  local own = redis.pcall('HMGET', name, 'every', 'period', 'base', 'spent')
  if own.err or not own[1] then return end
  local period, spent = period_of(own[1], seconds), own[4] or '0'
  local base = own[2] == period and own[3] or spent
  local after = tonumber(spent) + change
  if after < tonumber(base) then base = string.format('%.0f', after) end  -- a period is never below nothing
  redis.pcall('HSET', name, 'period', period, 'base', base)
end

local function spend(A, kid, amount, seconds)  -- amount: a ledger amount, negative for a charge
  if amount == '0' then return end
  local spent = string.sub(amount, 1, 1) == '-' and string.sub(amount, 2) or '-' .. amount
  for _, name in ipairs({ A .. ':k:' .. kid, member_of(A, kid) }) do
    begin_period(name, tonumber(spent), seconds)
    redis.call('HINCRBY', name, 'spent', spent)
  end
  count_month(A, tonumber(spent), seconds)
end

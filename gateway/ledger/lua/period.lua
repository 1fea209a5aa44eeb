-- Periods of spending: the calendar months of an account's cap, and the periods of the budget of a key or a member. All
-- are in UTC.
-- An account's hash has mcap (the cap), month and mspent (charged in that month). The other hashes have every, period and
-- base: what was spent when the period began. The period in a hash may have passed: then it counts as empty, and the
-- next script that charges writes the new one. Admissions write none of these fields.

local function period_of(every, seconds)  -- seconds: Unix time. 2026-11 for a month, else a letter and a number
  local days = math.floor(seconds / 86400)
  if every == 'day' then return string.format('d%d', days) end
  if every == 'week' then return string.format('w%d', math.floor((days + 3) / 7)) end  -- weeks begin on Monday
  -- The Gregorian calendar in years that begin in March: the leap day is then the last day of its year.
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local march = math.floor((5 * doy + 2) / 153)
  local month = march < 10 and march + 3 or march - 9
  return string.format('%04d-%02d', yoe + era * 400 + (month <= 2 and 1 or 0), month)
end

local function month_spent(month, spent, seconds)  -- in the current month; nothing if `month` has passed
  return month == period_of('month', seconds) and tonumber(spent) or 0
end

-- The lowest balance that calls may leave: the floor, or higher if the cap of the month ends before it. A charge does not
-- change it, because it lowers the balance by what it adds to the month.
local function lowest_balance(A, bal, floor, seconds)
  local own = redis.call('HMGET', A, 'mcap', 'month', 'mspent')
  if not own[1] then return floor end
  return math.max(floor, bal + month_spent(own[2], own[3], seconds) - tonumber(own[1]))
end

-- What is added to a budget, so that `spent` counts from the start of the period; without one it counts from the start.
local function budget_base(every, period, base, spent, seconds)
  if every and period ~= period_of(every, seconds) then return spent end
  return tonumber(base or '0')
end

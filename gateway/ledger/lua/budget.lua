-- Changes the budget of a key or of a member.

-- Sets the fields in `wanted` of a hash with a budget; the value '' removes one. efrom in the hash is the id of the last
-- line before a new period, until count_budget.lua has run.
-- Returns that id, or '' if there is nothing to count, and the period; nil for a period without a budget: then nothing is
-- changed.
local function change_budget(A, name, wanted)
  local had = redis.call('HMGET', name, 'cap', 'every', 'period', 'efrom', 'spent')
  local function after(field, before)
    if wanted[field] == nil then return before end
    return wanted[field] ~= '' and wanted[field]
  end
  local every = after('every', had[2])
  if every and not after('cap', had[1]) then return nil end

  for field, value in pairs(wanted) do
    if value == '' then redis.call('HDEL', name, field) else redis.call('HSET', name, field, value) end
  end
  if wanted.every == '' and had[2] then
    redis.call('HDEL', name, 'period', 'base', 'efrom')
  elseif every then
    local period = period_of(every, redis.call('TIME')[1])
    if every ~= had[2] then
      local last = redis.call('XREVRANGE', A .. ':lg', '+', '-', 'COUNT', 1)[1]
      local from = last and last[1] or '0-0'
      redis.call('HSET', name, 'period', period, 'base', had[5] or '0', 'efrom', from)
      return from, period
    end
    -- The command that set the period may have been killed before it had counted.
    return had[3] == period and had[4] or '', period
  end
  return '', ''
end

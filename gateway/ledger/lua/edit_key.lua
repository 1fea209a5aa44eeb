-- Changes the settings of a key.
-- KEYS: {a:<account>}   ARGV: kid, then field value …; the value '' removes one
-- Returns code, text, period. OK: the text is the id of the last line before a new period of the budget, whose spending
-- count_key.lua completes, or ''. NOKEY; UNBOUNDED: a period without a budget. Only OK changes anything.
-- own is 1 if the key has one of the fields that admissions read only then. efrom is that id, until count_key.lua has run.

local OK, NOKEY, UNBOUNDED = 0, 1, 2

local A, name, wanted = KEYS[1], KEYS[1] .. ':k:' .. ARGV[1], {}
for i = 2, #ARGV, 2 do wanted[ARGV[i]] = ARGV[i + 1] end
local key = redis.call('HMGET', name, 'state', 'cap', 'every', 'period', 'efrom', 'spent')
if not key[1] then return { NOKEY, '', '' } end
local function after(field, before)
  if wanted[field] == nil then return before end
  return wanted[field] ~= '' and wanted[field]
end
local every = after('every', key[3])
if every and not after('cap', key[2]) then return { UNBOUNDED, '', '' } end

for field, value in pairs(wanted) do
  if value == '' then redis.call('HDEL', name, field) else redis.call('HSET', name, field, value) end
end
local from, period = '', ''
if wanted.every == '' and key[3] then
  redis.call('HDEL', name, 'period', 'base', 'efrom')
elseif every then
  period = period_of(every, redis.call('TIME')[1])
  if every ~= key[3] then
    local last = redis.call('XREVRANGE', A .. ':lg', '+', '-', 'COUNT', 1)[1]
    from = last and last[1] or '0-0'
    redis.call('HSET', name, 'period', period, 'base', key[6] or '0', 'efrom', from)
  elseif key[4] == period then
    from = key[5] or ''  -- the command that set the period was killed before it had counted
  end
end

local own = redis.call('HMGET', name, 'max', 'every', 'base', 'scopes')
if own[1] or own[2] or own[3] or own[4] then
  redis.call('HSET', name, 'own', '1')
else
  redis.call('HDEL', name, 'own')
end
return { OK, from, period }

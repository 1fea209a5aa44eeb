-- Changes the floor, the limits and the monthly cap of an account.
-- KEYS: {a:<account>}   ARGV: field value …   fields: floor rpm tpm conc mcap smax; the value '' removes one
-- Returns code, text, month. OK: the text is the id of the last line before a new cap, whose month count.lua completes,
-- or ''. SHORT: running calls need money below the new floor; the text is the highest possible floor. NOACCT.
-- {a:…} own is 1 if there is a limit or a cap. mfrom is that id, until count.lua has run.

local OK, SHORT, NOACCT = 0, 1, 20

local A, wanted = KEYS[1], {}
for i = 1, #ARGV, 2 do wanted[ARGV[i]] = ARGV[i + 1] end
local account = redis.call('HMGET', A, 'bal', 'held', 'floor', 'mcap', 'month', 'mfrom')
if not account[1] then return { NOACCT, '', '' } end
local month = period_of('month', redis.call('TIME')[1])

if wanted.floor then
  local floor = wanted.floor == '' and '0' or wanted.floor
  local most = tonumber(account[1]) - tonumber(account[2] or '0')
  if tonumber(floor) > math.max(most, tonumber(account[3] or '0')) then
    return { SHORT, string.format('%.0f', most), month }
  end
  redis.call('HSET', A, 'floor', floor)
end

for _, field in ipairs({ 'rpm', 'tpm', 'conc', 'smax' }) do
  if wanted[field] == '' then redis.call('HDEL', A, field) end
  if (wanted[field] or '') ~= '' then redis.call('HSET', A, field, wanted[field]) end
end

local from = ''
if wanted.mcap == '' then
  redis.call('HDEL', A, 'mcap', 'month', 'mspent', 'mfrom')
elseif wanted.mcap then
  redis.call('HSET', A, 'mcap', wanted.mcap)
  if not account[4] then
    local last = redis.call('XREVRANGE', A .. ':lg', '+', '-', 'COUNT', 1)[1]
    from = last and last[1] or '0-0'
    redis.call('HSET', A, 'month', month, 'mspent', '0', 'mfrom', from)
  elseif account[5] == month then
    from = account[6] or ''  -- the command that set the cap was killed before it had counted
  end
end

local own = redis.call('HMGET', A, 'rpm', 'tpm', 'conc', 'mcap', 'smax')
if own[1] or own[2] or own[3] or own[4] or own[5] then redis.call('HSET', A, 'own', '1') else redis.call('HDEL', A, 'own') end
return { OK, from, month }

-- Changes a balance by a credit or an adjustment, once per operation.
-- KEYS: {a:<account>}   ARGV: operation kind amount meta most (no balance may pass ±most) force (1: see SHORT)
-- Returns code, amount, balance. Codes: OK; DUP: repeated, with the stored values; CLASH: the operation had another
-- amount or kind; CAP: the balance would leave its bounds; SHORT: a debit that is not forced would take money that is
-- held or below the floor, with the amount that is free; NOACCT.

local OK, DUP, CLASH, CAP, SHORT, NOACCT = 0, 1, 2, 3, 4, 20

local A, operation, kind, amount, meta, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local account = redis.call('HMGET', A, 'bal', 'held', 'floor')
local bal = account[1]
if not bal then return { NOACCT, '0', '0' } end
local before = redis.call('HGET', A .. ':op', operation)
if before then
  if before == kind .. ' ' .. amount then return { DUP, amount, bal } end
  return { CLASH, string.match(before, ' (.*)$'), bal }
end
local after = tonumber(bal) + tonumber(amount)
if after > most or (after < -most and after < tonumber(bal)) then return { CAP, amount, bal } end
local free = tonumber(bal) - tonumber(account[2] or '0') - tonumber(account[3] or '0')
if tonumber(amount) < 0 and free + tonumber(amount) < 0 and ARGV[6] ~= '1' then
  return { SHORT, string.format('%.0f', math.max(0, free)), bal }
end
write_line(A, operation, kind, amount, meta)
redis.call('HSET', A .. ':op', operation, kind .. ' ' .. amount)
return { OK, amount, redis.call('HGET', A, 'bal') }

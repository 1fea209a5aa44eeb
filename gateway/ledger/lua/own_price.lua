-- Sets or removes the price that an account has of its own for a model, and changes the epoch of its prices.
-- KEYS: {a:<account>}   ARGV: model text most   (text '': remove; most: prices of its own that an account may have)
-- Returns OK, NOACCT, or FULL: the account has `most` other prices of its own.
-- The epoch is Redis time in µs, so that a store that lost its last writes never gives out an epoch a second time.

local OK, NOACCT, FULL = 0, 20, 21

local A, field, text, most = KEYS[1], 'p:' .. ARGV[1], ARGV[2], tonumber(ARGV[3])
local account = redis.call('HMGET', A, 'bal', 'pe', field)
if not account[1] then return NOACCT end
if text == '' then
  if not account[3] then return OK end
  redis.call('HDEL', A, field)
else
  local fields, others = redis.call('HKEYS', A), 0
  for i = 1, #fields do
    if string.sub(fields[i], 1, 2) == 'p:' and fields[i] ~= field then others = others + 1 end
  end
  if others >= most then return FULL end
  redis.call('HSET', A, field, text)
end
local clock = redis.call('TIME')
local epoch = math.max(clock[1] * 1000000 + clock[2], (tonumber(account[2] or '0') or 0) + 1)
redis.call('HSET', A, 'pe', string.format('%.0f', epoch))
return OK

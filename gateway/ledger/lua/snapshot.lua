-- Returns all data that the audit compares, at one moment. Reads only, so it runs on a replica.
-- KEYS: {a:<account>}
-- Returns the account's fields, the holds (rid, record, …), their expiries (rid, µs, …), the id of the last ledger line
-- ('' for none), per key: kid, spent, held, and the fields of the archive checkpoint.

local A = KEYS[1]
local last = redis.call('XREVRANGE', A .. ':lg', '+', '-', 'COUNT', 1)
local sums = {}
for _, kid in ipairs(redis.call('SMEMBERS', A .. ':ks')) do
  local key = redis.call('HMGET', A .. ':k:' .. kid, 'spent', 'held')
  sums[#sums + 1], sums[#sums + 2], sums[#sums + 3] = kid, key[1] or '0', key[2] or '0'
end
return { redis.call('HGETALL', A), redis.call('HGETALL', A .. ':rv'), redis.call('ZRANGE', A .. ':rx', 0, -1, 'WITHSCORES'),
         last[1] and last[1][1] or '', sums, redis.call('HGETALL', A .. ':ca') }

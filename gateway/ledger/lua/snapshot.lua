-- Returns the data that the audit compares of an account, at one moment. Reads only, so it runs on a replica.
-- KEYS: {a:<account>}   ARGV: most (holds and keys that are returned at once)
-- Returns balance, held, floor and sequence number (false if there is none), the id of the last ledger line ('' for
-- none), the numbers of holds, expiries, keys and fields of the archive checkpoint, the checkpoint's number of lines,
-- the store's time (µs), rid and expiry (µs) of the account's longest lease, the epoch of its own prices (false for
-- none), the number of keys in their order (-1 if it is no sorted set); then, unless there is more than `most` of
-- something, the holds (rid, record, …), their expiries (rid, µs, …), the keys (see sums.lua), the checkpoint's fields
-- and the users of keys (see sums.lua).

local A, most = KEYS[1], tonumber(ARGV[1])
local account = redis.call('HMGET', A, 'bal', 'held', 'floor', 'seq', 'pe')
local last = redis.call('XREVRANGE', A .. ':lg', '+', '-', 'COUNT', 1)
local clock = redis.call('TIME')
local holds, expiries = redis.call('HLEN', A .. ':rv'), redis.call('ZCARD', A .. ':rx')
local keys, carry = redis.call('SCARD', A .. ':ks'), redis.call('HLEN', A .. ':ca')
local rid, expires = longest_lease(A .. ':cc')
local ordered = redis.pcall('ZCARD', A .. ':ks:o')
local answer = { account[1], account[2], account[3], account[4], last[1] and last[1][1] or '', holds, expiries, keys,
                 carry, redis.call('HGET', A .. ':ca', 'n') or '0',
                 string.format('%.0f', clock[1] * 1000000 + clock[2]),
                 rid, expires, account[5], type(ordered) == 'table' and -1 or ordered }
if math.max(holds, expiries, keys, carry) <= most then
  answer[16] = redis.call('HGETALL', A .. ':rv')
  answer[17] = redis.call('ZRANGE', A .. ':rx', 0, -1, 'WITHSCORES')
  answer[18] = key_sums(A, redis.call('SMEMBERS', A .. ':ks'))
  answer[19] = redis.call('HGETALL', A .. ':ca')
  answer[20] = member_sums(A, answer[18])
end
return answer

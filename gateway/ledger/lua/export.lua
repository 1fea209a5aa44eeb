-- Returns what a backup has of an account, at one moment. Reads only. The ledger, the operations and the refunds are not
-- included: they only grow, so the caller reads them in pages.
-- KEYS: {a:<account>}
-- Returns the id of the last ledger line ('' for none), the numbers of operations and of refunds, then as flat lists the
-- account's hash, its archive checkpoint, its holds, their expiries (rid, µs, …), the ids of its keys, and per key its id
-- and its hash.

local A = KEYS[1]
local last = redis.call('XREVRANGE', A .. ':lg', '+', '-', 'COUNT', 1)
local kids, keys = redis.call('SMEMBERS', A .. ':ks'), {}
for i, kid in ipairs(kids) do
  keys[2 * i - 1], keys[2 * i] = kid, redis.call('HGETALL', A .. ':k:' .. kid)
end
return { last[1] and last[1][1] or '', redis.call('HLEN', A .. ':op'), redis.call('HLEN', A .. ':rf'),
         redis.call('HGETALL', A), redis.call('HGETALL', A .. ':ca'), redis.call('HGETALL', A .. ':rv'),
         redis.call('ZRANGE', A .. ':rx', 0, -1, 'WITHSCORES'), kids, keys }

-- Returns what a backup has of an account, at one moment. Reads only. The ledger is not included: it only grows, so the
-- caller reads it in pages. The same holds for the operations and the refunds if there are more than `most` of either.
-- Hashes of keys and members are not included if there are more than `most_keys`.
-- KEYS: {a:<account>}   ARGV: most, most_keys
-- Returns the numbers of operations and of refunds, the id of the last ledger line ('' for none), then as flat lists the
-- account's hash, its archive checkpoint, its holds, their expiries (rid, µs, …), the ids of its keys, per key its id
-- and its hash, per user of a key the user and the member's hash, and the operations and the refunds.

local A, most, most_keys = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local operations, refunds = redis.call('HLEN', A .. ':op'), redis.call('HLEN', A .. ':rf')
local whole = math.max(operations, refunds) <= most
local last = redis.call('XREVRANGE', A .. ':lg', '+', '-', 'COUNT', 1)
local kids, keys = redis.call('SMEMBERS', A .. ':ks'), {}
local members, seen = {}, {}
for i, kid in ipairs(#kids <= most_keys and kids or {}) do
  keys[2 * i - 1], keys[2 * i] = kid, redis.call('HGETALL', A .. ':k:' .. kid)
  local member = member_of(A, kid)
  if member and not seen[member] then
    seen[member] = true
    members[#members + 1] = string.sub(member, #A + 4)
    members[#members + 1] = redis.call('HGETALL', member)
  end
end
return { operations, refunds, last[1] and last[1][1] or '',
         redis.call('HGETALL', A), redis.call('HGETALL', A .. ':ca'), redis.call('HGETALL', A .. ':rv'),
         redis.call('ZRANGE', A .. ':rx', 0, -1, 'WITHSCORES'), kids, keys, members,
         whole and redis.call('HGETALL', A .. ':op') or {}, whole and redis.call('HGETALL', A .. ':rf') or {} }

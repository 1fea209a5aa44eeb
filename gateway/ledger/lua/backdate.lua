-- Opens an account with ledger lines of the past. Only `gateway serve --demo` does this.
-- KEYS: {a:<account>}   ARGV: group, then per line, in the order of time: ms rid kind amount meta kid user
--       ms: Unix time in milliseconds; kid, user: the key of a call and its user, '' for none
-- Returns 1, or 0 if the account exists.

local WIDTH = 7

local A, group, first = KEYS[1], ARGV[1], tonumber(ARGV[2])
if redis.call('EXISTS', A) == 1 then return 0 end
local n, bal, spent, used = 0, 0, {}, {}
for at = 2, #ARGV, WIDTH do
  local ms, amount, kid, user = ARGV[at], ARGV[at + 3], ARGV[at + 5], ARGV[at + 6]
  n, bal = n + 1, bal + amount
  redis.call('XADD', A .. ':lg', ms .. '-' .. n, 'n', n, 'rid', ARGV[at + 1], 'kind', ARGV[at + 2], 'amount', amount,
             'bal', string.format('%.0f', bal), 'meta', ARGV[at + 4])
  if kid ~= '' then
    local key = A .. ':k:' .. kid
    spent[key], used[key] = (spent[key] or 0) - amount, math.floor(ms / 1000)
    if user ~= '' then spent[A .. ':u:' .. user] = (spent[A .. ':u:' .. user] or 0) - amount end
  end
end
for name, sum in pairs(spent) do redis.call('HINCRBY', name, 'spent', string.format('%.0f', sum)) end
for name, seconds in pairs(used) do redis.call('HSET', name, 'used', seconds) end
redis.call('HSET', A, 'state', 'active', 'group', group, 'bal', string.format('%.0f', bal), 'held', '0', 'floor', '0',
           'seq', n, 'epoch', '1', 'created', math.floor(first / 1000))
return 1

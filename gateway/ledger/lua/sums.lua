-- What the audit compares of the keys and members of an account.

local function longest_lease(name)  -- rid and expiry (µs) of the lease that ends last; '' and 0 for none, -1: unreadable
  local last = redis.pcall('ZRANGE', name, -1, -1, 'WITHSCORES')
  if last.err then return '', '-1' end
  return last[1] or '', last[2] or '0'
end

-- Per key: kid, state ('' when there is no such key), spent, held, its longest lease, and its user ('' for none).
local function key_sums(A, kids)
  local sums = {}
  for _, kid in ipairs(kids) do
    local key = redis.call('HMGET', A .. ':k:' .. kid, 'state', 'spent', 'held', 'user')
    local rid, expires = longest_lease(A .. ':cc:' .. kid)
    local n = #sums
    sums[n + 1], sums[n + 2], sums[n + 3] = kid, key[1] or '', key[2] or '0'
    sums[n + 4], sums[n + 5], sums[n + 6], sums[n + 7] = key[3] or '0', rid, expires, key[4] or ''
  end
  return sums
end

local function member_sums(A, keys)  -- per user of these keys: user, spent, held
  local sums, seen = {}, { [''] = true }
  for at = 7, #keys, 7 do
    local user = keys[at]
    if not seen[user] then
      seen[user] = true
      local member = redis.call('HMGET', A .. ':u:' .. user, 'spent', 'held')
      local n = #sums
      sums[n + 1], sums[n + 2], sums[n + 3] = user, member[1] or '0', member[2] or '0'
    end
  end
  return sums
end

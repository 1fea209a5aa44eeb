-- What the audit compares of the keys of an account.

local function longest_lease(name)  -- rid and expiry (µs) of the lease that ends last; '' and 0 for none, -1: unreadable
  local last = redis.pcall('ZRANGE', name, -1, -1, 'WITHSCORES')
  if last.err then return '', '-1' end
  return last[1] or '', last[2] or '0'
end

local function key_sums(A, kids)  -- per key: kid, state ('' when there is no such key), spent, held, and its longest lease
  local sums = {}
  for _, kid in ipairs(kids) do
    local key = redis.call('HMGET', A .. ':k:' .. kid, 'state', 'spent', 'held')
    local rid, expires = longest_lease(A .. ':cc:' .. kid)
    local n = #sums
    sums[n + 1], sums[n + 2], sums[n + 3] = kid, key[1] or '', key[2] or '0'
    sums[n + 4], sums[n + 5], sums[n + 6] = key[3] or '0', rid, expires
  end
  return sums
end

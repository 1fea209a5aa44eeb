-- Ends a claim: stores the answer of its call, marks the answer as lost, or releases the Idempotency-Key.
-- KEYS: {a:<account>}   ARGV: name rid state (done, lost, free) head body most (bytes of answers kept per account)
-- Returns 1, or 0 if the record belongs to another call.
-- {a:…}:ids lists the stored answers, oldest first, as "name rid bytes"; {a:…}:idb is the sum of the bytes.

local KEPT_MS = 86400000
local EACH = 100  -- expired answers removed from the list per call

local A, name, rid, state, head, body, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local record, list, sum = A .. ':id:' .. name, A .. ':ids', A .. ':idb'
local owner = redis.call('HMGET', record, 'rid', 'state')
if owner[1] ~= rid or owner[2] ~= 'open' then return 0 end
if state == 'free' then
  redis.call('DEL', record)
  return 1
end
redis.call('HSET', record, 'state', state)
redis.call('HDEL', record, 'until', 'kid', 'meta')
redis.call('PEXPIRE', record, KEPT_MS)
if state ~= 'done' then return 1 end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local bytes = #head + #body
redis.call('HSET', record, 'head', head, 'body', body)
redis.call('ZADD', list, now, name .. ' ' .. rid .. ' ' .. bytes)
local total = redis.call('INCRBY', sum, bytes)

local function drop(entry)
  local other, call, size = string.match(entry, '^(%S+) (%S+) (%d+)$')
  redis.call('ZREM', list, entry)
  total = redis.call('DECRBY', sum, size)
  local kept = A .. ':id:' .. other
  if redis.call('HGET', kept, 'rid') == call then
    redis.call('HDEL', kept, 'head', 'body')
    redis.call('HSET', kept, 'state', 'lost')
  end
end

for _, entry in ipairs(redis.call('ZRANGEBYSCORE', list, '-inf', now - KEPT_MS, 'LIMIT', 0, EACH)) do drop(entry) end
while total > most do drop(redis.call('ZRANGE', list, 0, 0)[1]) end
redis.call('PEXPIRE', list, KEPT_MS)
redis.call('PEXPIRE', sum, KEPT_MS)
return 1

-- The answers that are kept for retries: {a:…}:ids lists them, oldest first, as "name rid bytes"; {a:…}:idb is the sum of
-- the bytes.

local KEPT_MS = 86400000
local EACH = 100  -- answers dropped per call, and
local EACH_BYTES = 8388608  -- their bytes: the server needs time to free them, too

local function drop_answers(A, now, most)  -- the expired ones, and the oldest while there are more than `most` bytes
  local list, sum = A .. ':ids', A .. ':idb'
  local total, freed = tonumber(redis.call('GET', sum) or '0'), 0
  local oldest = redis.call('ZRANGE', list, 0, EACH - 1, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    local entry, at = oldest[i], tonumber(oldest[i + 1])
    if total <= most and at > now - KEPT_MS then return false end
    if freed >= EACH_BYTES then return true end
    local other, call, size = string.match(entry, '^(%S+) (%S+) (%d+)$')
    redis.call('ZREM', list, entry)
    freed, total = freed + size, redis.call('DECRBY', sum, size)
    local kept = A .. ':id:' .. other
    if redis.call('HGET', kept, 'rid') == call then
      redis.call('HDEL', kept, 'head', 'body')
      redis.call('HSET', kept, 'state', 'lost')
    end
  end
  return total > most and #oldest == 2 * EACH  -- whether there is more to drop
end

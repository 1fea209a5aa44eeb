-- Queues a delivery that failed again, unless it was dropped meanwhile.
-- KEYS: due, deliveries, created, failed   ARGV: account member text share most
-- Returns whether it is queued.

local account, member = ARGV[1], ARGV[2]
if redis.call('HEXISTS', KEYS[2], member) == 0 then return 0 end
local now = string.format('%.3f', stamp())
take(KEYS[4], account, member)
redis.call('HSET', KEYS[2], member, ARGV[3])
redis.call('ZADD', KEYS[1], now, member)
put(KEYS[3], account, member, now)
shrink(KEYS[3], account, tonumber(ARGV[4]), tonumber(ARGV[5]), KEYS[2], KEYS[1])
return 1

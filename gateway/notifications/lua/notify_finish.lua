-- Ends an attempt at a delivery, unless the delivery was dropped meanwhile.
-- KEYS: due, deliveries, created, failed
-- ARGV: action member text number, then member and text of each delivery that takes its place
-- done: it is removed. retry: it is due again in `number` ms. failed: it is kept among the last `number` failed ones.

local action, member, text, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call('HEXISTS', KEYS[2], member) == 0 then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local stamp = string.format('%.0f', now)
if action == 'retry' then
  redis.call('HSET', KEYS[2], member, text)
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + number), member)
  return 1
end
redis.call('ZREM', KEYS[1], member)
redis.call('ZREM', KEYS[3], member)
if action == 'done' then
  redis.call('HDEL', KEYS[2], member)
  for i = 5, #ARGV, 2 do
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    redis.call('ZADD', KEYS[1], stamp, ARGV[i])
    redis.call('ZADD', KEYS[3], stamp, ARGV[i])
  end
  return 1
end
redis.call('HSET', KEYS[2], member, text)
redis.call('ZADD', KEYS[4], stamp, member)
local over = redis.call('ZCARD', KEYS[4]) - number
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', KEYS[4], 0, over - 1)) do
    redis.call('HDEL', KEYS[2], old)
    redis.call('ZREM', KEYS[4], old)
  end
end
return 1

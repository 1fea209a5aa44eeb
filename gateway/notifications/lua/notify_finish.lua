-- Ends an attempt at a delivery, unless the delivery was dropped meanwhile.
-- KEYS: due, deliveries, created, failed
-- ARGV: action account member text number share most, then member and text of each delivery that takes its place
-- done: it is removed. retry: it is due again in `number` ms. failed: it is kept, with at most `most` failed ones, `share`
-- of them of the account; for `done`, these are the bounds of the deliveries that wait.
-- Returns how many other deliveries were dropped.

local action, account, member, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local number, share, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if redis.call('HEXISTS', KEYS[2], member) == 0 then return 0 end
local now = stamp()
local at = string.format('%.3f', now)
if action == 'retry' then
  redis.call('HSET', KEYS[2], member, text)
  redis.call('ZADD', KEYS[1], string.format('%.3f', now + number), member)
  return 0
end
redis.call('ZREM', KEYS[1], member)
take(KEYS[3], account, member)
if action == 'done' then
  redis.call('HDEL', KEYS[2], member)
  for i = 8, #ARGV, 2 do
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    redis.call('ZADD', KEYS[1], at, ARGV[i])
    put(KEYS[3], account, ARGV[i], at)
  end
  return shrink(KEYS[3], account, share, most, KEYS[2], KEYS[1])
end
redis.call('HSET', KEYS[2], member, text)
put(KEYS[4], account, member, at)
shrink(KEYS[4], account, share, most, KEYS[2])
return 0

-- Notes that a condition holds and queues its event, once per crossing.
-- KEYS: states of the kind, due, deliveries, created
-- ARGV: subject level mark value most, then member and text of each delivery
-- A state is `level cleared value mark`; `cleared` is the time (ms) since which the condition no longer holds, or 0.
-- Returns whether the event is new, and how many of the oldest deliveries were dropped because there are more than `most`.

local subject, level, mark, value, most = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local before = redis.call('HGET', KEYS[1], subject)
if before then
  local old, cleared, kept, name = string.match(before, '^(%d+) (%d+) (%S+) (.*)$')
  if old and name == mark and tonumber(old) >= level then
    if cleared ~= '0' then redis.call('HSET', KEYS[1], subject, string.format('%s 0 %s %s', old, kept, mark)) end
    return { 0, 0 }
  end
end
redis.call('HSET', KEYS[1], subject, string.format('%d 0 %s %s', level, value, mark))

local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
for i = 6, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  redis.call('ZADD', KEYS[2], now, ARGV[i])
  redis.call('ZADD', KEYS[4], now, ARGV[i])
end
local over = redis.call('ZCARD', KEYS[4]) - most
if over <= 0 then return { 1, 0 } end
local oldest = redis.call('ZRANGE', KEYS[4], 0, over - 1)
for _, member in ipairs(oldest) do
  redis.call('HDEL', KEYS[3], member)
  redis.call('ZREM', KEYS[2], member)
  redis.call('ZREM', KEYS[4], member)
end
return { 1, #oldest }

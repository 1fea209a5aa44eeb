-- Notes that a condition no longer holds. After it has not held for `rest` ms, its next crossing is an event again.
-- KEYS: states of the kind   ARGV: subject rest

local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before then return 0 end
local level, cleared, value, mark = string.match(before, '^(%d+) (%d+) (%S+) (.*)$')
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local rest = tonumber(ARGV[2])
if not level or rest == 0 or (cleared ~= '0' and now - tonumber(cleared) >= rest) then
  return redis.call('HDEL', KEYS[1], ARGV[1])
end
if cleared == '0' then
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%s %.0f %s %s', level, now, value, mark))
end
return 0

-- Notes that conditions of one account hold and queues their one event, once per crossing.
-- KEYS: states of the kind, due, deliveries, created
-- ARGV: account share most number, then subject level mark value of each condition, then member and text of each delivery
-- A state is `level cleared value mark`; `cleared` is the time (ms) since which the condition no longer holds, or 0.
-- Returns whether the event is queued, how many deliveries were dropped, and the numbers of the conditions that are
-- crossings: if these are not all, nothing is queued, and the caller makes an event of them alone.

local account, share, most, number = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local crossings = {}
for i = 1, number do
  local subject, level, mark = ARGV[4 * i + 1], tonumber(ARGV[4 * i + 2]), ARGV[4 * i + 3]
  local is_crossing, before = true, redis.call('HGET', KEYS[1], subject)
  if before then
    local old, cleared, kept, name = string.match(before, '^(%d+) (%d+) (%S+) (.*)$')
    if old and name == mark and tonumber(old) >= level then
      is_crossing = false
      if cleared ~= '0' then redis.call('HSET', KEYS[1], subject, string.format('%s 0 %s %s', old, kept, mark)) end
    end
  end
  if is_crossing then crossings[#crossings + 1] = i end
end
if #crossings < number then return { 0, 0, unpack(crossings) } end

for i = 1, number do
  local subject, level, mark, value = ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3], ARGV[4 * i + 4]
  redis.call('HSET', KEYS[1], subject, string.format('%d 0 %s %s', level, value, mark))
end
local now = string.format('%.3f', stamp())
for i = 5 + 4 * number, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  redis.call('ZADD', KEYS[2], now, ARGV[i])
  put(KEYS[4], account, ARGV[i], now)
end
return { 1, shrink(KEYS[4], account, share, most, KEYS[3], KEYS[2]) }

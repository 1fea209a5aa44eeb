-- Adds what was charged in a month before its cap was set; see limit.lua.
-- KEYS: {a:<account>}   ARGV: month, id of the last line that is counted, amount
-- Returns 1; 0 if it was counted before.

local A = KEYS[1]
local own = redis.call('HMGET', A, 'month', 'mspent', 'mfrom')
if own[3] ~= ARGV[2] then return 0 end
redis.call('HDEL', A, 'mfrom')
if own[1] ~= ARGV[1] or own[1] ~= period_of('month', redis.call('TIME')[1]) then return 0 end
redis.call('HSET', A, 'mspent', string.format('%.0f', math.max(0, tonumber(own[2]) + tonumber(ARGV[3]))))
return 1

-- Adds what a key was charged in a period before its budget had periods; see edit_key.lua.
-- KEYS: {a:<account>}   ARGV: kid, period, id of the last line that is counted, amount
-- Returns 1; 0 if it was counted before, or if the period has passed.

local name = KEYS[1] .. ':k:' .. ARGV[1]
local key = redis.call('HMGET', name, 'every', 'period', 'efrom')
if key[3] ~= ARGV[3] then return 0 end
redis.call('HDEL', name, 'efrom')
if key[2] ~= ARGV[2] or key[2] ~= period_of(key[1], redis.call('TIME')[1]) then return 0 end
redis.call('HINCRBY', name, 'base', string.format('%.0f', 0 - tonumber(ARGV[4])))
return 1

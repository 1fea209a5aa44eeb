-- Adds what was charged in a period before the budget of a key or a member had periods; see budget.lua.
-- KEYS: {a:<account>}   ARGV: owner (k:<kid> or u:<user>), period, id of the last line that is counted, amount
-- Returns 1; 0 if it was counted before, or if the period has passed.

local name = KEYS[1] .. ':' .. ARGV[1]
local own = redis.call('HMGET', name, 'every', 'period', 'efrom')
if own[3] ~= ARGV[3] then return 0 end
redis.call('HDEL', name, 'efrom')
if own[2] ~= ARGV[2] or own[2] ~= period_of(own[1], redis.call('TIME')[1]) then return 0 end
redis.call('HINCRBY', name, 'base', string.format('%.0f', 0 - tonumber(ARGV[4])))
return 1

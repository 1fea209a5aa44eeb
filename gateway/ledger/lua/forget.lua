-- Goes on to drop answers that keep.lua had no time for.
-- KEYS: {a:<account>}   ARGV: most (bytes of answers kept per account)
-- Returns 1, or 2 when there are more to drop: call again.

local clock = redis.call('TIME')
return drop_answers(KEYS[1], clock[1] * 1000 + math.floor(clock[2] / 1000), tonumber(ARGV[1])) and 2 or 1

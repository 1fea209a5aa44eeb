-- Charges expired holds of one account at their last checkpoint.
-- KEYS: {a:<account>}   ARGV: most
-- Returns the number of holds that had expired. The caller repeats the call while it equals `most`.

local clock = redis.call('TIME')
return reclaim(KEYS[1], clock[1] * 1000000 + clock[2], tonumber(ARGV[1]), 0, {}, {}, {})

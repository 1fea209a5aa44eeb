-- Charges expired holds of one account at their last checkpoint.
-- KEYS: {a:<account>}   ARGV: most
-- Returns how many holds were due; call again while it equals `most`.

local clock = redis.call('TIME')
return reclaim(KEYS[1], clock[1] * 1000000 + clock[2], tonumber(ARGV[1]))

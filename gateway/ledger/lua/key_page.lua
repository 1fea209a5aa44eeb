-- What the audit compares of some keys of an account and of their users, see sums.lua. Reads only, so it runs on a
-- replica.
-- KEYS: {a:<account>}   ARGV: kids

local keys = key_sums(KEYS[1], ARGV)
return { keys, member_sums(KEYS[1], keys) }

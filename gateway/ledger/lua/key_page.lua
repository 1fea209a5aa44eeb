-- What the audit compares of some keys of an account, see sums.lua. Reads only, so it runs on a replica.
-- KEYS: {a:<account>}   ARGV: kids

return key_sums(KEYS[1], ARGV)

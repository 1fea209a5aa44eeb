#!lua flags=allow-oom
-- Sets the state of an account or a key, also on a full server (allow-oom): it must always be possible to revoke.
-- KEYS: the hash of the account or of the key   ARGV: state
-- Returns 1, or 0 if there is no such hash.

if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'state', ARGV[1])
return 1

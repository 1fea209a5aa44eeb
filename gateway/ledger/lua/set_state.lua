#!lua flags=allow-oom
-- Sets the state of an account or a key, also on a full server (allow-oom): it must always be possible to revoke.
-- KEYS: the hash of the account or of the key   ARGV: state, then optionally the only state that is changed
-- Returns 1, or 0 if there is no such hash or it has another state.

local before = redis.call('HGET', KEYS[1], 'state')
if not before or (ARGV[2] and before ~= ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'state', ARGV[1])
return 1

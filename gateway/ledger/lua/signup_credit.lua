-- Counts the account of a sign-up that begins with a credit, once.
-- KEYS: the hash of the accounts that have one   ARGV: account, the most that may have one, seconds until it expires
-- Returns 1 if the account begins with a credit, 0 if not, and -1 for the first one that does not.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 1 end
local refused = redis.call('HEXISTS', KEYS[1], '')
if redis.call('HLEN', KEYS[1]) - refused >= tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], '', 1)
  return refused - 1
end
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('EXPIRE', KEYS[1], ARGV[3], 'NX')
return 1

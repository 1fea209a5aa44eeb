-- Adds a name to a set, and to the order beside it if there is one.
-- KEYS: the set, its order   ARGV: the name, the name as the order has it

redis.call('SADD', KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('ZADD', KEYS[2], 0, ARGV[2]) end

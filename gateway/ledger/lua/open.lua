-- Opens an account with its first ledger line.
-- KEYS: {a:<account>}   ARGV: group balance meta
-- Returns 1, or 0 if the account exists.

local A, group, balance, meta = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if redis.call('EXISTS', A) == 1 then return 0 end
redis.call('HSET', A, 'state', 'active', 'group', group, 'bal', '0', 'held', '0', 'floor', '0', 'seq', '0',
           'epoch', '1', 'created', redis.call('TIME')[1])
write_line(A, 'open', 'open', balance, meta)
return 1

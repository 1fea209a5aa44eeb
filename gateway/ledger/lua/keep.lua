-- Ends a claim: stores the answer of its call, marks the answer as lost, or releases the Idempotency-Key.
-- KEYS: {a:<account>}   ARGV: name rid state (done, lost, free) head body most (bytes of answers kept per account)
-- Returns 1; 0 if the record belongs to another call; 2 if forget.lua has answers to delete.

local A, name, rid, state, head, body, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local record, list, sum = A .. ':id:' .. name, A .. ':ids', A .. ':idb'
local owner = redis.call('HMGET', record, 'rid', 'state')
if owner[1] ~= rid or owner[2] ~= 'open' then return 0 end
if state == 'free' then
  redis.call('DEL', record)
  return 1
end
redis.call('HSET', record, 'state', state)
redis.call('HDEL', record, 'until', 'kid', 'meta')
redis.call('PEXPIRE', record, KEPT_MS)
if state ~= 'done' then return 1 end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local bytes = #head + #body
redis.call('HSET', record, 'head', head, 'body', body)
redis.call('ZADD', list, now, name .. ' ' .. rid .. ' ' .. bytes)
redis.call('INCRBY', sum, bytes)
redis.call('PEXPIRE', list, KEPT_MS)
redis.call('PEXPIRE', sum, KEPT_MS)
return drop_answers(A, now, most) and 2 or 1

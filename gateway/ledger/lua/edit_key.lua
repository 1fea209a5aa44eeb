-- Changes the settings of a key.
-- KEYS: {a:<account>}   ARGV: kid, names of fields that admissions read only if own is set, then field value …;
-- the value '' removes one
-- Returns code, and for OK what change_budget returns, the time in seconds, and the fields of the key after the change.
-- NOKEY; UNBOUNDED: a period without a budget; PASSED: an expiry that has passed. Only OK changes anything.

local OK, NOKEY, UNBOUNDED, PASSED = 0, 1, 2, 3

local A, name, wanted = KEYS[1], KEYS[1] .. ':k:' .. ARGV[1], {}
local now = redis.call('TIME')[1]
for i = 3, #ARGV, 2 do wanted[ARGV[i]] = ARGV[i + 1] end
if redis.call('HEXISTS', name, 'state') == 0 then return { NOKEY, '', '', '', {} } end
if (tonumber(wanted.exp) or math.huge) <= tonumber(now) then return { PASSED, '', '', '', {} } end
local from, period = change_budget(A, name, wanted)
if not from then return { UNBOUNDED, '', '', '', {} } end

local own = false
for field in string.gmatch(ARGV[2], '%S+') do own = own or redis.call('HEXISTS', name, field) == 1 end
if own then redis.call('HSET', name, 'own', '1') else redis.call('HDEL', name, 'own') end
return { OK, from, period, now, redis.call('HGETALL', name) }

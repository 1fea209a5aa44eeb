-- Changes the settings of a key.
-- KEYS: {a:<account>}   ARGV: kid, then field value …; the value '' removes one
-- Returns code, and for OK what change_budget returns. NOKEY; UNBOUNDED: a period without a budget. Only OK changes
-- anything.
-- own is 1 if the key has one of the fields that admissions read only then.

local OK, NOKEY, UNBOUNDED = 0, 1, 2

local A, name, wanted = KEYS[1], KEYS[1] .. ':k:' .. ARGV[1], {}
for i = 2, #ARGV, 2 do wanted[ARGV[i]] = ARGV[i + 1] end
if redis.call('HEXISTS', name, 'state') == 0 then return { NOKEY, '', '' } end
local from, period = change_budget(A, name, wanted)
if not from then return { UNBOUNDED, '', '' } end

local own = redis.call('HMGET', name, 'max', 'every', 'base', 'scopes', 'user')
if own[1] or own[2] or own[3] or own[4] or own[5] then
  redis.call('HSET', name, 'own', '1')
else
  redis.call('HDEL', name, 'own')
end
return { OK, from, period }

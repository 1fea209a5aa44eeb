-- Returns the current permissions of a key. Reads only.
-- KEYS: {a:<account>}   ARGV: kid, then the models whose rules are wanted
-- Returns code, group, the key's own models and its scopes ('': none), then the account's rule of each wanted model: + or
-- -, '' for none. Codes: OK, KEY, ACCOUNT, GONE: the key or its account is not in the store.

local OK, KEY, ACCOUNT, GONE = 0, 1, 2, 3

local A = KEYS[1]
local key = redis.call('HMGET', A .. ':k:' .. ARGV[1], 'state', 'exp', 'models', 'scopes')
local fields = { 'state', 'group' }
for i = 2, #ARGV do fields[i + 1] = 'm:' .. ARGV[i] end
local account = redis.call('HMGET', A, unpack(fields))
if not key[1] or not account[1] then return { GONE } end
if key[1] ~= 'active' then return { KEY } end
if key[2] and tonumber(key[2]) <= tonumber(redis.call('TIME')[1]) then return { KEY } end
if account[1] ~= 'active' then return { ACCOUNT } end
local answer = { OK, account[2] or '', key[3] or '', key[4] or '' }
for i = 3, #fields do answer[i + 2] = account[i] or '' end
return answer

-- Returns the current permissions of a key. Reads only.
-- KEYS: {a:<account>}   ARGV: kid
-- Returns code (OK, KEY, ACCOUNT), group, the key's own models ('': none), then the account's rules: model, + or -, …

local OK, KEY, ACCOUNT = 0, 1, 2

local A = KEYS[1]
local key = redis.call('HMGET', A .. ':k:' .. ARGV[1], 'state', 'exp', 'models')
local account = redis.call('HGETALL', A)
if key[1] ~= 'active' or #account == 0 then return { KEY } end
if key[2] and tonumber(key[2]) <= tonumber(redis.call('TIME')[1]) then return { KEY } end
local group, state, rules = '', '', {}
for i = 1, #account, 2 do
  local field, value = account[i], account[i + 1]
  if field == 'group' then group = value end
  if field == 'state' then state = value end
  if string.sub(field, 1, 2) == 'm:' then
    rules[#rules + 1] = string.sub(field, 3)
    rules[#rules + 1] = value
  end
end
if state ~= 'active' then return { ACCOUNT } end
return { OK, group, key[3] or '', unpack(rules) }

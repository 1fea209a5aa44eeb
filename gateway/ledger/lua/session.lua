-- The budget of a session: what its calls may cost within a day of its first call. {a:<account>}:ss:<session> has what the
-- calls of this day have spent and hold, its start (µs), and gmax, the limit of the account's group at the last admission.
-- It expires at the end of the day. It is there only if a limit held when a call was admitted: smax of the key, smax of
-- the account or that of the group; the lowest one counts. Calls of an earlier day are not counted any more.
-- A batch is a session without a budget: it has its max_cost.
-- The id of the session is the last field of the hold's note. In the meta of a line only `joined` may follow it, and the
-- bracket of the compact form.

local DAY_MS = 86400000

local function session_name(A, meta)
  local id = string.match(meta, '"session":"([^"]*)"}%]?$')
    or string.match(meta, '"session":"([^"]*)","joined":{"form":"%a+","offset":%d+}}%]?$')
  return id and not (#id == 38 and string.match(id, '^batch_%x+$')) and A .. ':ss:' .. id or nil
end

local function lower(some, other)  -- of two limits, each nil if there is none
  if some and other then return math.min(some, other) end
  return some or other
end

local function limit_of(text)  -- of a stored limit, false or nil without one
  local most = text and tonumber(text)
  return most and most > 0 and most or nil
end

-- The name of the session's hash; nil if the session has none now, or if it began after the call's admission (µs).
local function session_since(A, meta, at)
  local name = session_name(A, meta)
  local start = name and redis.pcall('HGET', name, 'start')
  return type(start) == 'string' and tonumber(at) >= tonumber(start) and name or nil
end

local function session_held(A, record)  -- the same for the record of a hold that is counted in a session; see hold.lua
  local flags, at = string.match(record, '^%S+ %S+ %S+ %S+ %S+ (%S+) %S+ (%d+) ')
  return flags and string.find(flags, 's', 1, true) and session_since(A, record, at) or nil
end

local function give_back(name, amount)  -- what was not counted, because no limit held then, is not given back
  local back = math.min(tonumber(redis.call('HGET', name, 'spent') or '0'), tonumber(amount))
  if back > 0 then redis.call('HINCRBY', name, 'spent', string.format('-%.0f', back)) end
end

local function session_left(A, key, name)  -- less all holds; nil if no limit holds now. key: the name of the key's hash
  local own = redis.call('HMGET', name, 'spent', 'held', 'gmax')
  local of_key, of_account = limit_of(redis.call('HGET', key, 'smax')), limit_of(redis.call('HGET', A, 'smax'))
  local most = lower(of_key, lower(of_account, limit_of(own[3])))
  return most and most - tonumber(own[1] or '0') - tonumber(own[2] or '0')
end

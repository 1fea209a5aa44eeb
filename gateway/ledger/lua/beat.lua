-- Renews the leases of running calls of one account and stores the usage of each call.
-- KEYS: {a:<account>}   ARGV: lease_µs, then per call: rid used
-- The concurrency lease of a call whose caller has left stays ended.
-- Returns per call OK, REVOKED (the key or the account may no longer spend, so the caller ends the stream) or GONE (the
-- hold was reclaimed or settled).

local OK, REVOKED, GONE = 0, 1, 2

local A, count = KEYS[1], (#ARGV - 1) / 2
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local expires = now + tonumber(ARGV[1])
local state = redis.call('HGET', A, 'state')
local rids = {}
for i = 1, count do rids[i] = ARGV[2 * i] end
local holds = redis.call('HMGET', A .. ':rv', unpack(rids))

local valid = {}
local function may_spend(kid)
  if valid[kid] == nil then
    local key = redis.call('HMGET', A .. ':k:' .. kid, 'state', 'exp')
    valid[kid] = state == 'active' and key[1] == 'active' and not (key[2] and tonumber(key[2]) * 1000000 <= now)
  end
  return valid[kid]
end

local answer, records, expiries = {}, {}, {}
for i = 1, count do
  if not holds[i] then
    answer[i] = GONE
  else
    local rid, used, hold = rids[i], ARGV[2 * i + 1], read_hold(holds[i])
    if tonumber(used) > tonumber(hold.used) then
      records[#records + 1] = rid
      records[#records + 1] = used .. string.sub(holds[i], #hold.used + 1)
    end
    expiries[#expiries + 1], expiries[#expiries + 2] = expires, rid
    if has(hold, 'k') then redis.call('ZADD', A .. ':cc:' .. hold.kid, 'XX', expires, rid) end
    if has(hold, 'a') then redis.call('ZADD', A .. ':cc', 'XX', expires, rid) end
    answer[i] = may_spend(hold.kid) and OK or REVOKED
  end
end
if #records > 0 then redis.call('HSET', A .. ':rv', unpack(records)) end
if #expiries > 0 then redis.call('ZADD', A .. ':rx', unpack(expiries)) end
return answer

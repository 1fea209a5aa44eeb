-- Admits or refuses a batch of calls of one account by rules.lua. A refused call writes nothing and consumes no limit.
-- KEYS: {a:<account>}   ARGV: see rules.lua
-- Returns REGROUP group | REPRICE epoch | NOACCT, or nine integers per call: code, detail, held amount (of a refusal:
-- whose limit refuses, see rules.lua), then limit, remaining and reset (µs) of requests and of tokens, -1 if there is no
-- limit. detail: Redis time (µs) of an admission, or the wait (µs).
-- All holds and their sums are written together at the end. The sums are exact in doubles, because all holds together
-- fit into a balance below 2^53.

local NOTED = 60  -- seconds between two notes of a key's use
local ENDED = 200  -- ended leases removed per batch, which adds far fewer
local expires = string.format('%.0f', now + tonumber(ARGV[5]))

local function reread(owners)
  for name, owner in pairs(owners) do
    local sums = redis.call('HMGET', name, 'spent', 'held')
    owner.spent, owner.held = tonumber(sums[1] or '0'), tonumber(sums[2] or '0') + owner.granted
  end
end

function sweep()  -- the holds of a dead worker may reserve money that is no longer needed
  if reclaim(A, now, SWEPT, limits.granted, keys, members, sessions) == 0 then return end
  local fresh = redis.call('HMGET', A, 'bal', 'held')
  bal, held = tonumber(fresh[1]), tonumber(fresh[2]) + limits.granted
  for kid, other in pairs(keys) do
    local sums = redis.call('HMGET', A .. ':k:' .. kid, 'spent', 'held')
    other.spent, other.held = tonumber(sums[1] or '0'), tonumber(sums[2] or '0') + other.granted
  end
  reread(members)
  reread(sessions)
end

local records, expiries, admitted = {}, {}, {}

local function grant(owner, rid, hold, tokens)  -- owner: the key, or the account's limits
  owner.granted = owner.granted + hold
  pour(owner.requests, 1)
  pour(owner.tokens, tokens)
  if owner.conc > 0 then
    local leases = owner.leases
    local n = #leases
    owner.live = owner.live + 1
    leases[n + 1], leases[n + 2] = expires, rid
  end
end

-- amount, counted: the hold and the tokens as text, because Lua writes a number from 1e14 on with an exponent.
local function write_hold(rid, kid, key, hold, amount, tokens, counted, note, session)
  held, key.held = held + hold, key.held + hold
  grant(limits, rid, hold, tokens)
  grant(key, rid, hold, tokens)
  local member = key.member
  if member then member.held, member.granted = member.held + hold, member.granted + hold end
  if session then session.held, session.granted = session.held + hold, session.granted + hold end
  if not key.terms then  -- the part that is equal in all records of the key
    local flags = (key.cap and '-b' or '-') .. (key.every and 'p' or '') .. (member and 'u' or '') ..
                  (key.conc > 0 and 'k' or '') .. (limits.conc > 0 and 'a' or '')
    key.terms = string.format(' %d %d %s %s %s ', key.tpm, limits.tpm, flags, kid, stamp)
  end
  local n = #records
  records[n + 1], expiries[n + 1] = rid, expires
  local terms = session and string.gsub(key.terms, ' %-', ' -s', 1) or key.terms
  records[n + 2], expiries[n + 2] = '0 ' .. amount .. ' ' .. counted .. terms .. note, rid
end

local answer, n = {}, 0
local function report(bucket, other)  -- the bucket with less room, of the key and the account
  if not bucket or (other and room(other) < room(bucket)) then bucket = other end
  if not bucket then
    answer[n + 1], answer[n + 2], answer[n + 3] = -1, -1, -1
  else
    answer[n + 1], answer[n + 2] = bucket.limit, room(bucket)
    answer[n + 3] = math.ceil(bucket.level * MINUTE / bucket.limit)
  end
  n = n + 3
end

for i = 1, count do
  local at = HEAD + (i - 1) * WIDTH
  local rid, kid, amount, tokens = rids[i], ARGV[at + 2], ARGV[at + 5], tonumber(ARGV[at + 6])
  local hold = tonumber(amount)
  local key = keys[kid] or open_key(kid)
  local code, detail, granted, session
  if admitted[rid] then
    code, detail, granted = DUP, now, admitted[rid]
  else
    code, detail, granted, session = decide(i, key, ARGV[at + 3], ARGV[at + 4], hold, tokens, 0 + ARGV[at + 8], 0 + ARGV[at + 9])
  end
  if code == OK then
    admitted[rid] = granted
    if granted < hold then amount = string.format('%.0f', granted) end
    write_hold(rid, kid, key, granted, amount, tokens, ARGV[at + 6], ARGV[at + 7], session)
  end
  answer[n + 1], answer[n + 2], answer[n + 3] = code, detail, granted
  n = n + 3
  report(key.requests, limits.requests)
  report(key.tokens, limits.tokens)
end

local function save(owner)
  save_bucket(owner.requests, now)
  save_bucket(owner.tokens, now)
  if #owner.leases > 0 then
    local ended = math.min(redis.call('ZCOUNT', owner.cc, '-inf', stamp), ENDED)
    if ended > 0 then redis.call('ZREMRANGEBYRANK', owner.cc, 0, ended - 1) end
    redis.call('ZADD', owner.cc, unpack(owner.leases))
  end
end

local function save_session(name, session)
  if not session.start then
    redis.call('HSET', name, 'start', stamp)
    redis.call('PEXPIRE', name, DAY_MS)
  end
  if session.group ~= ARGV[7] then redis.call('HSET', name, 'gmax', ARGV[7]) end
  redis.call('HINCRBY', name, 'held', string.format('%.0f', session.granted))
end

if #records > 0 then
  redis.call('HSET', A .. ':rv', unpack(records))
  if limits.granted > 0 then redis.call('HINCRBY', A, 'held', string.format('%.0f', limits.granted)) end
  for kid, key in pairs(keys) do
    if key.cap and key.granted > 0 then
      redis.call('HINCRBY', A .. ':k:' .. kid, 'held', string.format('%.0f', key.granted))
    end
  end
  for name, member in pairs(members) do
    if member.granted > 0 then redis.call('HINCRBY', name, 'held', string.format('%.0f', member.granted)) end
  end
  for name, session in pairs(sessions) do
    if session.granted > 0 then save_session(name, session) end
  end
  redis.call('ZADD', A .. ':rx', unpack(expiries))
  save(limits)
  for kid, key in pairs(keys) do
    if key.valid then save(key) end
    if key.terms and (not key.used or clock[1] - key.used >= NOTED) then  -- it has a call that was admitted
      redis.call('HSET', A .. ':k:' .. kid, 'used', clock[1])
    end
  end
end
return answer

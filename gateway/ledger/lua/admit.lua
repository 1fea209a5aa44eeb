-- Admits or refuses a batch of asks of one account. A refused ask writes nothing and uses up no limiter.
-- KEYS: {a:<account>}
-- ARGV: group rpm tpm concurrency lease_µs (the group's limits, 0: none), then per ask
--       rid kid model enabled hold tokens note   (enabled: 1 when the group may use the model)
-- Returns REGROUP group | NOACCT, or per ask eight integers: code, detail, then limit, remaining and reset (µs) of
-- requests and of tokens, -1 where there is no limit. detail: Redis time (µs) of an admission, or the wait (µs).

local OK, KEY, ACCOUNT, MODEL, TOOBIG, CONC, RPM, TPM, BUDGET, FUNDS, DUP, DONE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local NOACCT, REGROUP = 20, 21
local HEAD, WIDTH = 5, 7

local A, count = KEYS[1], (#ARGV - HEAD) / WIDTH
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local fields, rids, marks = { 'state', 'group', 'bal', 'held', 'floor' }, {}, {}
for i = 1, count do
  local at = HEAD + (i - 1) * WIDTH
  rids[i], marks[i] = ARGV[at + 1], A .. ':st:' .. ARGV[at + 1]
  fields[HEAD + i] = 'm:' .. ARGV[at + 3]
end
local account = redis.call('HMGET', A, unpack(fields))
if not account[1] then return { NOACCT } end
if account[2] ~= ARGV[1] then return { REGROUP, account[2] } end
local bal, held, floor = tonumber(account[3]), tonumber(account[4]), tonumber(account[5] or '0')
local holds = redis.call('HMGET', A .. ':rv', unpack(rids))
local settled = redis.call('MGET', unpack(marks))
local limits = { rpm = tonumber(ARGV[2]), tpm = tonumber(ARGV[3]), conc = tonumber(ARGV[4]) }
local expires = now + tonumber(ARGV[5])
local swept = false

local function attach_limits(owner, suffix)  -- buckets and leases of a key, or of the account when suffix is ''
  local wanted = {}
  if owner.rpm > 0 then wanted[1], wanted[2] = A .. ':rpm' .. suffix, owner.rpm end
  if owner.tpm > 0 then wanted[#wanted + 1], wanted[#wanted + 2] = A .. ':tpm' .. suffix, owner.tpm end
  if #wanted > 0 then
    local opened = open_buckets(wanted, now)
    if owner.rpm > 0 then owner.requests = opened[1] end
    if owner.tpm > 0 then owner.tokens = opened[#opened] end
  end
  owner.cc, owner.leases = A .. ':cc' .. suffix, {}
  if owner.conc > 0 then owner.live = redis.call('ZCOUNT', owner.cc, '(' .. string.format('%.0f', now), '+inf') end
  return owner
end

local keys = {}
local function open_key(kid)
  local k = redis.call('HMGET', A .. ':k:' .. kid,
                       'state', 'exp', 'rpm', 'tpm', 'conc', 'models', 'cap', 'spent', 'held')
  local key = { state = k[1], exp = k[2], rpm = tonumber(k[3] or '0'), tpm = tonumber(k[4] or '0'),
                conc = tonumber(k[5] or '0'), models = k[6], cap = k[7] and tonumber(k[7]),
                spent = tonumber(k[8] or '0'), held = tonumber(k[9] or '0') }
  key.valid = key.state == 'active' and not (key.exp and tonumber(key.exp) * 1000000 <= now)
  if key.valid then attach_limits(key, ':' .. kid) end
  keys[kid] = key
  return key
end

attach_limits(limits, '')

local function permitted(key, model, rule, enabled)
  if key.models and (string.find(model, '\n', 1, true) or
                     not string.find(key.models, '\n' .. model .. '\n', 1, true)) then return false end
  return rule == '+' or (rule ~= '-' and enabled == '1')
end

local function full(owner) return owner.conc > 0 and owner.live >= owner.conc end

local function decide(i, key, model, enabled, hold, tokens)
  if holds[i] then return DUP, tonumber(read_hold(holds[i]).at) end
  if settled[i] then return DONE, 0 end
  if not key.valid then return KEY, 0 end
  if account[1] ~= 'active' then return ACCOUNT, 0 end
  if not permitted(key, model, account[HEAD + i], enabled) then return MODEL, 0 end
  if (key.tokens and tokens > key.tpm) or (limits.tokens and tokens > limits.tpm) then return TOOBIG, 0 end
  if full(key) or full(limits) then return CONC, 0 end
  local wait = math.max(wait_for(key.requests, 1), wait_for(limits.requests, 1))
  if wait > 0 then return RPM, wait end
  wait = math.max(wait_for(key.tokens, tokens), wait_for(limits.tokens, tokens))
  if wait > 0 then return TPM, wait end
  if hold > 0 then
    if key.cap and key.spent + key.held + hold > key.cap then return BUDGET, 0 end
    if bal - held - floor < hold and not swept then  -- money may be tied up in the holds of a dead worker
      swept = true
      if reclaim(A, now, 10) > 0 then
        local fresh = redis.call('HMGET', A, 'bal', 'held')
        bal, held = tonumber(fresh[1]), tonumber(fresh[2])
        for kid, other in pairs(keys) do
          local sums = redis.call('HMGET', A .. ':k:' .. kid, 'spent', 'held')
          other.spent, other.held = tonumber(sums[1] or '0'), tonumber(sums[2] or '0')
        end
      end
    end
    if bal - held - floor < hold then return FUNDS, 0 end
  end
  return OK, now
end

local records, expiries, granted = {}, {}, {}
local function write_hold(rid, kid, key, amount, tokens, note)
  local flags = key.cap and '-b' or '-'
  if amount ~= '0' then
    held = redis.call('HINCRBY', A, 'held', amount)
    if key.cap then key.held = redis.call('HINCRBY', A .. ':k:' .. kid, 'held', amount) end
  end
  for flag, owner in pairs({ k = key, a = limits }) do
    pour(owner.requests, 1)
    pour(owner.tokens, tokens)
    if owner.conc > 0 then
      flags, owner.live = flags .. flag, owner.live + 1
      owner.leases[#owner.leases + 1], owner.leases[#owner.leases + 2] = expires, rid
    end
  end
  local n = #records
  records[n + 1], expiries[n + 1] = rid, expires
  records[n + 2] = string.format('0 %s %d %d %d %s %s %.0f %s',
                                 amount, tokens, key.tpm, limits.tpm, flags, kid, now, note)
  expiries[n + 2] = rid
end

local answer = {}
local function report(bucket, other)  -- the tighter of the key's and the account's bucket
  if not bucket or (other and room(other) < room(bucket)) then bucket = other end
  local n = #answer
  if not bucket then
    answer[n + 1], answer[n + 2], answer[n + 3] = -1, -1, -1
  else
    answer[n + 1], answer[n + 2] = bucket.limit, room(bucket)
    answer[n + 3] = math.ceil(bucket.level * MINUTE / bucket.limit)
  end
end

for i = 1, count do
  local at = HEAD + (i - 1) * WIDTH
  local rid, kid, amount, tokens = rids[i], ARGV[at + 2], ARGV[at + 5], tonumber(ARGV[at + 6])
  local key = keys[kid] or open_key(kid)
  local code, detail
  if granted[rid] then
    code, detail = DUP, now
  else
    code, detail = decide(i, key, ARGV[at + 3], ARGV[at + 4], tonumber(amount), tokens)
  end
  if code == OK then
    granted[rid] = true
    write_hold(rid, kid, key, amount, tokens, ARGV[at + 7])
  end
  answer[#answer + 1], answer[#answer + 2] = code, detail
  report(key.requests, limits.requests)
  report(key.tokens, limits.tokens)
end

local function save(owner)
  save_bucket(owner.requests, now)
  save_bucket(owner.tokens, now)
  if #owner.leases > 0 then
    redis.call('ZREMRANGEBYSCORE', owner.cc, '-inf', now)
    redis.call('ZADD', owner.cc, unpack(owner.leases))
  end
end

if #records > 0 then
  redis.call('HSET', A .. ':rv', unpack(records))
  redis.call('ZADD', A .. ':rx', unpack(expiries))
  save(limits)
  for _, key in pairs(keys) do
    if key.valid then save(key) end
  end
end
return answer

-- The rules of an admission, in their order. This part writes nothing. Then `admit` writes the admitted calls, and
-- `explain` returns the refusals.
-- `own` in a hash says that an account has limits of its own or a cap, or that a key has a user, scopes, a period, a most
-- per call or a most per session. Others cost nothing more.
-- ARGV: group rpm tpm concurrency lease_µs (the group's limits, 0: none) epoch (of the account's own prices) gmax (the
--       group's budget of a session, 0: none), then per call
--       rid kid model enabled hold tokens note least share
--       enabled: 1 if the group may use the model, else 0, then the key's scopes that the caller has checked
--       least, share: a hold that does not fit is lowered to 1/share of the free money, if that is at least `least`;
--       share 0: it is never lowered
-- Returns REGROUP group if the account is in another group than ARGV says, REPRICE epoch if its own prices have another
-- epoch, or NOACCT. The detail of KEY is GONE if the store does not have the key, although keys are never deleted.

local OK, KEY, ACCOUNT, MODEL, TOOBIG, CONC, RPM, TPM, BUDGET, FUNDS, DUP, DONE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
-- The cap of the month; the most of one call; see `unchecked`; the budget of the key's user; that of the session.
local SPENT, COSTLY, SCOPED, MEMBER, SESSION = 12, 13, 14, 15, 16
local NOACCT, REGROUP, REPRICE = 20, 21, 22
local OF_KEY, OF_ACCOUNT = 1, 2  -- whose limit refuses
local GONE = 1
local HEAD, WIDTH = 7, 9
local SWEPT = 10  -- expired holds read when the balance does not cover a call

local A, count = KEYS[1], (#ARGV - HEAD) / WIDTH
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local stamp = string.format('%.0f', now)

local fields, rids, names = { 'state', 'group', 'bal', 'held', 'floor', 'own', 'pe' }, {}, {}
local rules = {}  -- the account's own rule for each model: + or -, false for none
for i = 1, count do
  local at = HEAD + (i - 1) * WIDTH
  local model = ARGV[at + 3]
  rids[i], names[i] = ARGV[at + 1], A .. ':st:' .. ARGV[at + 1]
  if not rules[model] then
    fields[#fields + 1] = 'm:' .. model
    rules[model] = #fields
  end
end
local account = redis.call('HMGET', A, unpack(fields))
if not account[1] then return { NOACCT } end
if account[2] ~= ARGV[1] then return { REGROUP, account[2] } end
if (account[7] or '') ~= ARGV[6] then return { REPRICE, account[7] or '' } end
for model, at in pairs(rules) do rules[model] = account[at] end
local bal, held, floor = tonumber(account[3]), tonumber(account[4]), tonumber(account[5] or '0')
local lowest = account[6] and lowest_balance(A, bal, floor, clock[1]) or floor
local holds = redis.call('HMGET', A .. ':rv', unpack(rids))
local swept = false
local sweep  -- set by the script that follows; handles expired holds once, before a refusal for lack of money

-- An owner of limits is a key or the account. The suffix of the account is ''. One MGET reads all buckets of an owner.
local function name_buckets(owner, suffix, names)
  if owner.rpm > 0 then names[#names + 1] = A .. ':rpm' .. suffix end
  if owner.tpm > 0 then names[#names + 1] = A .. ':tpm' .. suffix end
  return names
end

local function attach_limits(owner, suffix, names, stored, at)  -- the owner's names begin after `at`
  if owner.rpm > 0 then
    at = at + 1
    owner.requests = open_bucket(names[at], owner.rpm, stored[at], now)
  end
  if owner.tpm > 0 then
    at = at + 1
    owner.tokens = open_bucket(names[at], owner.tpm, stored[at], now)
  end
  owner.cc, owner.leases = A .. ':cc' .. suffix, {}
  if owner.conc > 0 then owner.live = redis.call('ZCOUNT', owner.cc, '(' .. stamp, '+inf') end
end

local function attach_key(key, kid)
  local suffix = ':' .. kid
  local own = name_buckets(key, suffix, {})
  attach_limits(key, suffix, own, #own > 0 and redis.call('MGET', unpack(own)) or own, 0)
end

local function expired(key) return key.exp and tonumber(key.exp) * 1000000 <= now end

local members = {}  -- users with keys, by the names of their hashes; see member.lua
local function open_member(name)
  local found = members[name]
  if found then return found end
  local m = redis.call('HMGET', name, 'cap', 'spent', 'held', 'every', 'period', 'base')
  local member = { name = name, spent = tonumber(m[2] or '0'), held = tonumber(m[3] or '0'), granted = 0 }
  if m[1] then
    member.base = budget_base(m[4], m[5], m[6], member.spent, clock[1])
    member.cap = tonumber(m[1]) + member.base
  end
  members[name] = member
  return member
end

-- A number that is no number ends the script with an error, before anything is written: the caller sends the calls of
-- each key again by themselves, so those of this key fail alone. `used` is written anew.
local keys = {}
local function open_key(kid)
  local name = A .. ':k:' .. kid
  local k = redis.call('HMGET', name, 'state', 'exp', 'rpm', 'tpm', 'conc', 'models', 'cap', 'spent', 'held',
                       'own', 'used')
  local key = { state = k[1], exp = k[2], rpm = tonumber(k[3] or '0'), tpm = tonumber(k[4] or '0'),
                conc = tonumber(k[5] or '0'), models = k[6], cap = k[7] and 0 + k[7],
                spent = tonumber(k[8] or '0'), held = tonumber(k[9] or '0'), granted = 0,
                used = k[11] and tonumber(k[11]) }
  if k[10] then
    local own = redis.call('HMGET', name, 'max', 'every', 'period', 'base', 'scopes', 'user', 'smax')
    key.max, key.every, key.scopes, key.smax = own[1] and 0 + own[1], own[2], own[5], own[7] and 0 + own[7]
    if own[6] then key.member = open_member(A .. ':u:' .. own[6]) end
    if key.cap then
      key.base = budget_base(own[2], own[3], own[4], key.spent, clock[1])
      key.cap = key.cap + key.base
    end
  end
  key.valid = key.state == 'active' and not expired(key)
  if key.valid then attach_key(key, kid) end
  keys[kid] = key
  return key
end

local limits = { rpm = tonumber(ARGV[2]), tpm = tonumber(ARGV[3]), conc = tonumber(ARGV[4]), granted = 0,
                 smax = limit_of(ARGV[7]) }
if account[6] then  -- the account has limits of its own: the lower one counts
  local own = redis.call('HMGET', A, 'rpm', 'tpm', 'conc', 'smax')
  limits.smax = lower(limits.smax, limit_of(own[4]))
  for i, name in ipairs({ 'rpm', 'tpm', 'conc' }) do
    local most = tonumber(own[i] or '0')
    if most > 0 and (limits[name] == 0 or most < limits[name]) then limits[name] = most end
  end
end
local settled = redis.call('MGET', unpack(name_buckets(limits, '', names)))  -- the markers of the calls come first
attach_limits(limits, '', names, settled, count)

local function listed(key, model)  -- true if the key has no list of models or its list names the model
  return not key.models or (not string.find(model, '\n', 1, true) and
                            string.find(key.models, '\n' .. model .. '\n', 1, true) ~= nil)
end

local function permitted(key, model, rule, enabled)
  return listed(key, model) and (rule == '+' or (rule ~= '-' and (enabled == '1' or string.sub(enabled, 1, 1) == '1')))
end

-- The caller checks the scopes that it knows of. They are part of `enabled`, so that an edit is noticed.
local function unchecked(key, enabled) return key.scopes and key.scopes ~= string.sub(enabled, 2) end

local function full(owner) return owner.conc > 0 and owner.live >= owner.conc end

local sessions = {}  -- with a budget, by the names of their hashes; see session.lua
local function open_session(key, note)  -- nil for a call without a session, or if no limit holds
  local name = (key.smax or limits.smax) and session_name(A, note)
  if not name then return nil end
  local found = sessions[name]
  if not found then
    local s = redis.call('HMGET', name, 'start', 'spent', 'held', 'gmax')
    found = { start = s[1], spent = tonumber(s[2] or '0'), held = tonumber(s[3] or '0'), group = s[4], granted = 0 }
    sessions[name] = found
  end
  return found
end

-- The amount to hold: `hold`, or less where it may be lowered; nil and the refusal when the money is short, with what is
-- left of the budget of the session.
local function fit(key, hold, least, share, session)
  local free = bal - held - lowest
  if free < hold and not swept then
    swept = true
    sweep()
    free = bal - held - lowest
  end
  local left, member = key.cap and key.cap - key.spent - key.held, key.member
  local both = left and math.min(free, left) or free
  local shared = member and member.cap and member.cap - member.spent - member.held
  if shared and shared < both then both = shared end
  local within = session and lower(key.smax, limits.smax) - session.spent - session.held
  if within and within < both then both = within end
  local most = key.max or hold
  if both >= hold and most >= hold then return hold end
  local lowered = share > 0 and math.min(math.floor(both / share), most) or 0
  if lowered > 0 and lowered >= least then return lowered end
  if most < (share > 0 and least or hold) then return nil, COSTLY end
  local needed = share > 0 and least * share or hold
  if left and left < needed then return nil, BUDGET end
  if shared and shared < needed then return nil, MEMBER end
  if within and within < needed then return nil, SESSION, math.max(0, within) end
  return nil, bal - held - floor < needed and FUNDS or SPENT
end

-- Returns the code, then Redis time (µs) of the admission and the amount held; or the wait (µs), and whose limit refuses:
-- the key's or the account's, 0 where the code says it. COSTLY has the most of one call instead of the wait, SCOPED the
-- scopes, SESSION what is left. An admission also has the session in whose budget it counts, if any.
local function decide(i, key, model, enabled, hold, tokens, least, share)
  if holds[i] then
    local before = read_hold(holds[i])
    return DUP, tonumber(before.at), tonumber(before.amount)
  end
  if settled[i] then return DONE, 0, 0 end
  if not key.valid then return KEY, key.state and 0 or GONE, 0 end
  if account[1] ~= 'active' then return ACCOUNT, 0, 0 end
  if unchecked(key, enabled) then return SCOPED, key.scopes, 0 end
  if not permitted(key, model, rules[model], enabled) then return MODEL, 0, 0 end
  if (key.tokens and tokens > key.tpm) or (limits.tokens and tokens > limits.tpm) then return TOOBIG, 0, 0 end
  if full(key) then return CONC, 0, OF_KEY end
  if full(limits) then return CONC, 0, OF_ACCOUNT end
  local wait = math.max(wait_for(key.requests, 1), wait_for(limits.requests, 1))
  if wait > 0 then return RPM, wait, wait_for(key.requests, 1) == wait and OF_KEY or OF_ACCOUNT end
  wait = math.max(wait_for(key.tokens, tokens), wait_for(limits.tokens, tokens))
  if wait > 0 then return TPM, wait, wait_for(key.tokens, tokens) == wait and OF_KEY or OF_ACCOUNT end
  if hold > 0 then
    local session = open_session(key, ARGV[HEAD + (i - 1) * WIDTH + 7])
    local granted, refusal, left = fit(key, hold, least, share, session)
    if not granted then return refusal, left or refusal == COSTLY and key.max or 0, 0 end
    return OK, now, granted, session
  end
  return OK, now, 0
end

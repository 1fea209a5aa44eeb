-- Explains the decision about one call with rules.lua: it ignores each rule that refuses and decides again. So it names
-- every refusing rule. Reads only, so it runs on a replica.
-- KEYS: {a:<account>}   ARGV: see rules.lua, with one call
-- Returns REGROUP group | REPRICE epoch | NOACCT, or {}, then the refusals: code, wait (µs), … and the facts: name, value
-- (as text), …

local kid, model, enabled = ARGV[HEAD + 2], ARGV[HEAD + 3], ARGV[HEAD + 4]
local hold, tokens = tonumber(ARGV[HEAD + 5]), tonumber(ARGV[HEAD + 6])
local least, share = tonumber(ARGV[HEAD + 8]), tonumber(ARGV[HEAD + 9])
local rule = rules[model]
local key = open_key(kid)
if not key.valid then attach_key(key, kid) end

local facts = {}
local function tell(name, value)
  if value == nil or value == false then return end
  if type(value) == 'number' then value = string.format('%.0f', value) end
  facts[#facts + 1], facts[#facts + 2] = name, value
end

local function tell_limits(who, owner)
  if owner.conc > 0 then
    tell(who .. '.concurrency', owner.conc)
    tell(who .. '.running', owner.live)
  end
  for name, bucket in pairs({ rpm = owner.requests or false, tpm = owner.tokens or false }) do
    if bucket then
      tell(who .. '.' .. name, bucket.limit)
      tell(who .. '.' .. name .. '.room', room(bucket))
      tell(who .. '.' .. name .. '.wait', wait_for(bucket, name == 'rpm' and 1 or tokens))
    end
  end
end

tell('key.state', key.state)
tell('key.expires', key.exp)
tell('key.expired', expired(key) and '1')
tell('key.listed', key.models and (listed(key, model) and '1' or '0'))
tell('key.budget', key.cap and key.cap - (key.base or 0))
tell('key.spent', key.spent - (key.base or 0))
tell('key.max', key.max)
tell('key.scopes', key.scopes)
key.scopes = nil  -- of a caller that is not known
tell('key.held', key.held)
if key.member and key.member.cap then
  tell('member.budget', key.member.cap - key.member.base)
  tell('member.spent', key.member.spent - key.member.base)
  tell('member.held', key.member.held)
end
tell('session.budget', lower(key.smax, limits.smax))
local session = open_session(key, ARGV[HEAD + 7])
if session then
  tell('session.spent', session.spent)
  tell('session.held', session.held)
end
tell('account.state', account[1])
tell('account.rule', rule)
tell_limits('key', key)
tell_limits('account', limits)

function sweep()  -- computes the result of reclaim and writes nothing
  for _, rid in ipairs(redis.call('ZRANGEBYSCORE', A .. ':rx', '-inf', now, 'LIMIT', 0, SWEPT)) do
    local text = redis.call('HGET', A .. ':rv', rid)
    if text then
      local due = read_hold(text)
      local used, amount = tonumber(due.used), tonumber(due.amount)
      if used > amount then
        local taken, apart = has(due, 'b') and 0 or amount, has(due, 'u') and 0 or amount
        local left = bal - held - lowest
        used = math.min(used, amount + room_beyond(A, left, A .. ':k:' .. due.kid, taken, member_of(A, due.kid), apart,
                                                   session_held(A, text), 0))
      end
      bal, held = bal - used, held - amount
    end
  end
end

local lifted = {
  [KEY] = function()
    if key.state == 'active' then
      key.valid = true
    else
      key.state = 'active'
      key.valid = not expired(key)
    end
  end,
  [ACCOUNT] = function() account[1] = 'active' end,
  [MODEL] = function() key.models, rule, enabled = nil, '+', '1' end,
  [TOOBIG] = function() key.tpm, limits.tpm = math.huge, math.huge end,
  [CONC] = function() key.conc, limits.conc = 0, 0 end,
  [RPM] = function() key.requests, limits.requests = nil, nil end,
  [TPM] = function() key.tokens, limits.tokens = nil, nil end,
  [COSTLY] = function() key.max = nil end,
  [BUDGET] = function() key.cap = nil end,
  [MEMBER] = function() key.member = nil end,
  [SESSION] = function() key.smax, limits.smax = nil, nil end,
  [SPENT] = function() lowest = floor end,
}

local refusals = {}
while true do
  rules[model] = rule
  local code, wait, granted = decide(1, key, model, enabled, hold, tokens, least, share)
  if code == OK then
    tell('granted', granted)
    break
  end
  refusals[#refusals + 1], refusals[#refusals + 2] = code, (code == COSTLY or code == SESSION) and 0 or wait
  if not lifted[code] then break end
  lifted[code]()
end

tell('account.balance', bal)  -- after the charges of expired holds that an admission would make
tell('account.held', held)
tell('account.floor', floor)
local own = redis.call('HMGET', A, 'mcap', 'month', 'mspent')
if own[1] then
  tell('account.cap', own[1])
  tell('account.spent', month_spent(own[2], own[3], clock[1]))
end
return { {}, refusals, facts }

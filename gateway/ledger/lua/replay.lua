-- Counts the replay of a stored answer against the request limits, by the rules of an admission that apply to it: key,
-- account, permission and requests. It needs no money, no tokens and no concurrency lease.
-- KEYS: {a:<account>}   ARGV: see rules.lua, with one ask
-- Returns REGROUP group | REPRICE epoch | NOACCT, or eight integers as admit.lua: code, wait (µs), and the state of the
-- limits.

local kid, model, enabled = ARGV[HEAD + 2], ARGV[HEAD + 3], ARGV[HEAD + 4]
local key = open_key(kid)

local function decide_replay()
  if not key.valid then return KEY, key.state and 0 or GONE end
  if account[1] ~= 'active' then return ACCOUNT, 0 end
  if unchecked(key, enabled) then return SCOPED, key.scopes end
  if not permitted(key, model, rules[model], enabled) then return MODEL, 0 end
  local wait = math.max(wait_for(key.requests, 1), wait_for(limits.requests, 1))
  if wait > 0 then return RPM, wait end
  return OK, 0
end

local code, wait = decide_replay()
if code == OK then
  pour(key.requests, 1)
  pour(limits.requests, 1)
  save_bucket(key.requests, now)
  save_bucket(limits.requests, now)
end

local answer = { code, wait }
local function report(bucket, other)  -- the tighter of the key's and the account's bucket
  if not bucket or (other and room(other) < room(bucket)) then bucket = other end
  answer[#answer + 1] = bucket and bucket.limit or -1
  answer[#answer + 1] = bucket and room(bucket) or -1
  answer[#answer + 1] = bucket and math.ceil(bucket.level * MINUTE / bucket.limit) or -1
end
report(key.requests, limits.requests)
report(key.tokens, limits.tokens)
return answer

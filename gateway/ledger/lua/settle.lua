-- Settles or voids a batch of calls of one account: each exactly once, however often it is sent.
-- KEYS: {a:<account>}
-- ARGV: per call: rid kid kind amount tokens at force meta
--       kind use | void; amount: what the balance changes by, so "-5" for a charge; tokens: the true count, which
--       corrects the token limit; at: Redis time (µs) of the admission; force 1: the caller has searched the ledger
-- Returns NOACCT, or per call code, amount, balance (as text). Codes: OK; DUP already settled, with the stored
-- amount; LATE the hold was gone and the charge is made all the same (late truth beats lost truth); AMENDED the hold had
-- been reclaimed and only the difference is charged; OLD nothing done: the marker may have expired, look into the ledger.

local OK, DUP, LATE, AMENDED, OLD, NOACCT = 0, 1, 2, 3, 4, 20
local WIDTH = 8
local MARKER_SURE = 23 * 3600 * 1000000  -- µs; an admission older than this may have lost its marker

local A, count = KEYS[1], #ARGV / WIDTH
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local bal = redis.call('HGET', A, 'bal')
if not bal then return { NOACCT } end
local rids, marks = {}, {}
for i = 1, count do
  rids[i] = ARGV[(i - 1) * WIDTH + 1]
  marks[i] = A .. ':st:' .. rids[i]
end
local holds = redis.call('HMGET', A .. ':rv', unpack(rids))
local settled = redis.call('MGET', unpack(marks))
local gone, done = {}, {}

local buckets = {}
local function correct_tokens(name, limit, off)  -- one read and one write per bucket and batch
  if limit == 0 or off == 0 then return end
  if not buckets[name] then buckets[name] = open_bucket(name, limit, redis.call('GET', name), now) end
  pour(buckets[name], off)
end

local function charge(rid, kid, kind, amount, meta)
  local id
  bal, id = write_line(A, rid, kind, amount, meta)
  spend(A, kid, amount)
  mark(A, rid, 'use', amount, id)
end

local function amend(rid, kid, amount, before, meta)  -- the marker then holds the whole truth
  -- Exact in doubles: both lie between 0 and -2^53; and x - x is 0, not -0.
  local off = string.format('%.0f', tonumber(amount) - tonumber(before))
  local id
  bal, id = write_line(A, rid, 'adj', off, meta)
  spend(A, kid, off)
  mark(A, rid, 'use', amount, id)
end

local function settle(i, rid, kid, kind, amount, tokens, at, force, meta)
  local marker = done[rid] or settled[i]
  if marker then
    local was, before = string.match(marker, '^(%S+) (%S+)')
    if was ~= 'reclaim' or kind == 'void' then return DUP, tonumber(before) end
    amend(rid, kid, amount, before, meta)
    done[rid] = 'use ' .. amount
    return AMENDED, tonumber(amount)
  end
  done[rid] = kind .. ' ' .. amount
  if not holds[i] then
    if kind == 'void' then return DUP, 0 end
    if force ~= '1' and now - tonumber(at) > MARKER_SURE then
      done[rid] = nil
      return OLD, 0
    end
    charge(rid, kid, kind, amount, meta)
    return LATE, tonumber(amount)
  end
  local hold = read_hold(holds[i])
  release(A, rid, hold)
  gone[#gone + 1] = rid
  correct_tokens(A .. ':tpm:' .. hold.kid, hold.ktpm, tokens - hold.tokens)
  correct_tokens(A .. ':tpm', hold.atpm, tokens - hold.tokens)
  if kind == 'void' then
    mark(A, rid, 'void', '0', '-')
  else
    charge(rid, kid, kind, amount, meta)
  end
  return OK, tonumber(amount)
end

local answer = {}
for i = 1, count do
  local p = (i - 1) * WIDTH
  local code, amount = settle(i, ARGV[p + 1], ARGV[p + 2], ARGV[p + 3], ARGV[p + 4], tonumber(ARGV[p + 5]),
                              ARGV[p + 6], ARGV[p + 7], ARGV[p + 8])
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = code, amount, bal
end
for _, bucket in pairs(buckets) do save_bucket(bucket, now) end
if #gone > 0 then
  redis.call('HDEL', A .. ':rv', unpack(gone))
  redis.call('ZREM', A .. ':rx', unpack(gone))
end
return answer

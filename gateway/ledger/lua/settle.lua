-- Settles or voids a batch of calls of one account. Each call is settled exactly once, even if the batch is sent again.
-- KEYS: {a:<account>}
-- ARGV: per call: rid kid kind amount tokens at force meta hold
--       kind use | void; amount: minus the cost, so "-5"; tokens: the true count, which corrects the token limit;
--       at: Redis time (µs) of the admission; force 1: the caller has searched the ledger; hold: the held amount
-- Returns NOACCT, or per call code, charged amount, balance (as text). Codes: OK; DUP: already settled, with the stored
-- amount; LATE: the hold did not exist any more, and the call is charged; AMENDED: the hold was reclaimed before, and
-- only the difference is charged; OLD: nothing is done, because the marker may have expired, and the caller searches the
-- ledger.
--
-- A call is charged at most its hold and the money that no call holds: the balance above the floor, and the rest of the
-- budgets of the key, of its user and of the session. The remaining cost is `uncollected` on its line. A call that costs nothing has a
-- line, too.
-- Each call writes its line and its marker. All other changes are summed up and written once at the end of the batch.
-- An error stops the loop, and the sums of the lines written so far are still written: balance, number, sums and holds
-- always agree with the lines.
-- The loop is not a function on purpose: every run of the script would create a closure with its upvalues again, which
-- costs more than a call.

local OK, DUP, LATE, AMENDED, OLD, NOACCT = 0, 1, 2, 3, 4, 20
local WIDTH = 9
local MARKER_SURE = 23 * 3600 * 1000000  -- µs; an admission older than this may have lost its marker
local EXACT = 9007199254740992  -- 2^53: a sum of whole numbers that stays below it is exact in doubles
local LOWEST = 9000000000000000  -- nano-units; no charge takes a balance below minus this, so balances are exact doubles
local NONE = {}

local A, count = KEYS[1], #ARGV / WIDTH
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local account = redis.call('HMGET', A, 'bal', 'seq', 'held', 'floor', 'own')
local bal, seq, booked = account[1], tonumber(account[2]), false
if not bal then return { NOACCT } end
local held, floor = tonumber(account[3] or '0'), tonumber(account[4] or '0')
local opening, lowest = tonumber(bal), floor
if account[5] then lowest = lowest_balance(A, opening, floor, clock[1]) end
local rids, marks = {}, {}
for i = 1, count do
  local rid = ARGV[(i - 1) * WIDTH + 1]
  rids[i], marks[i] = rid, A .. ':st:' .. rid
end
local holds = redis.call('HMGET', A .. ':rv', unpack(rids))
local settled = redis.call('MGET', unpack(marks))

local fault
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then fault = fault or reply end
  return reply
end

local members = {}  -- by kid: the name of the hash of the key's user, false for none; see member.lua
local function member(kid)
  local name = members[kid]
  if name == nil then
    local user = try('HGET', A .. ':k:' .. kid, 'user')
    name = type(user) == 'string' and A .. ':u:' .. user
    members[kid] = name
  end
  return name
end

local function add(sums, field, name, amount)
  local before = sums[name] or 0
  local sum = before + amount
  if sum >= EXACT or sum <= -EXACT then  -- the sum would not be exact: the sum so far is written, and a new one begins
    try('HINCRBY', name, field, string.format('%.0f', before))
    sum = amount
  end
  sums[name] = sum
end

local periods = {}  -- true by name of a hash whose budget may have periods
local freed, spent = {}, {}  -- what `held` and `spent` change by, by name of their hash

-- At most `owed`. taken, apart: the hold if it is not part of what the key, or its user, holds; see room.lua. A session
-- has a budget only if the hold is part of what it holds, or if there is no hold.
local function collectable(kid, owed, hold, taken, apart, session)
  local key, user = A .. ':k:' .. kid, member(kid)
  local left = tonumber(bal) - lowest - held
  taken = taken + (spent[key] or 0) + (freed[key] or 0)
  if user then apart = apart + (spent[user] or 0) + (freed[user] or 0) end
  local beside = session and (spent[session] or 0) + (freed[session] or 0)
  local most = hold + room_beyond(A, left, key, taken, user, apart, session, beside)
  return math.max(0, math.min(owed, most, tonumber(bal) + LOWEST))
end

local function uncollected_of(id)  -- of the line that a reclaim wrote
  local line = id and try('XRANGE', A .. ':lg', id, id)[1]
  for i = 1, line and #line[2] or 0, 2 do
    if line[2][i] == 'uncollected' then return tonumber(line[2][i + 1]) end
  end
  return 0
end

local buckets = {}
local function correct_tokens(name, limit, off)  -- one read and one write per bucket and batch
  if limit == '0' or off == 0 then return end
  if not buckets[name] then
    local stored = try('GET', name)
    if fault then return end
    buckets[name] = open_bucket(name, tonumber(limit), stored, now)
  end
  pour(buckets[name], off)
end

local leases = {}
local function end_lease(name, rid)
  local ended = leases[name]
  if ended then ended[#ended + 1] = rid else leases[name] = { rid } end
end

local answer, done, gone = {}, {}, {}
for i = 1, count do
  local p = (i - 1) * WIDTH
  local rid, kid, kind, cost = rids[i], ARGV[p + 2], ARGV[p + 3], ARGV[p + 4]
  local marker, record = done[rid] or settled[i], holds[i]
  local code, charged, line = OK, cost, cost  -- of the whole call, as its marker has it; amount of the line, if any
  local linekind, extra = 'use', NONE
  local hold, flags, holder, session
  if marker then
    local was, before, id = string.match(marker, '^(%S+) (%S+) ?(%S*)')
    if was == 'reclaim' and kind == 'use' then
      -- Exact in doubles: all lie between 0 and -2^53; and x - x is 0, not -0.
      local owed, paid, more = -tonumber(cost), -tonumber(before), nil
      session = session_since(A, ARGV[p + 8], ARGV[p + 6])
      more = owed > paid and collectable(kid, owed - paid, 0, 0, 0, session) or owed - paid
      extra = extra_fields(owed - paid - more - uncollected_of(id))
      code, linekind, line = AMENDED, 'adj', string.format('%.0f', 0 - more)
      charged = string.format('%.0f', 0 - (paid + more))
    else
      code, charged, line = DUP, before, nil
    end
  elseif record then  -- six of nine fields without a table cost half of read_hold
    local tokens, ktpm, atpm
    hold, tokens, ktpm, atpm, flags, holder = string.match(record, '^%d+ (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) ')
    if not hold then fault = { err = 'ERR unreadable hold of ' .. rid } break end
    correct_tokens(A .. ':tpm:' .. holder, ktpm, ARGV[p + 5] - tokens)
    correct_tokens(A .. ':tpm', atpm, ARGV[p + 5] - tokens)
    if fault then break end
    session = string.find(flags, 's', 1, true) and session_held(A, record)
    local owed, amount = 0 - cost, 0 + hold
    if owed > amount then
      local paid = collectable(kid, owed, amount, string.find(flags, 'b', 1, true) and 0 or amount,
                               string.find(flags, 'u', 1, true) and 0 or amount, session)
      charged, extra = string.format('%.0f', 0 - paid), extra_fields(owed - paid)
      line = charged
    end
  elseif kind ~= 'use' then
    code, charged, line, done[rid] = DUP, '0', nil, 'void 0'
  elseif ARGV[p + 7] ~= '1' and now - tonumber(ARGV[p + 6]) > MARKER_SURE then
    code, charged, line = OLD, '0', nil
  else
    local owed = 0 - cost
    session = session_since(A, ARGV[p + 8], ARGV[p + 6])
    local paid = collectable(kid, owed, tonumber(ARGV[p + 9]), 0, 0, session)
    charged, extra = string.format('%.0f', 0 - paid), extra_fields(owed - paid, true)
    code, line = LATE, charged
  end
  local user = line and (not hold or string.find(flags, 'u', 1, true)) and member(kid)
  if fault then break end
  local id = '-'
  if line then
    local after = line == '0' and bal or string.format('%.0f', tonumber(bal) + line)
    id = try('XADD', A .. ':lg', '*', 'n', seq + 1, 'rid', rid, 'kind', linekind, 'amount', line,
             'bal', after, 'meta', ARGV[p + 8], unpack(extra))
    if fault then break end
    bal, seq, booked = after, seq + 1, true
    if line ~= '0' then
      add(spent, 'spent', A .. ':k:' .. kid, 0 - line)
      if session then add(spent, 'spent', session, 0 - line) end
      if user then
        add(spent, 'spent', user, 0 - line)
        periods[user] = true
      end
    end
    done[rid] = kind .. ' ' .. charged .. ' ' .. id
    try('SET', marks[i], done[rid], 'PX', MARKER_MS)
  end
  if not hold or string.find(flags, 'p', 1, true) then periods[A .. ':k:' .. kid] = true end
  if hold then
    gone[#gone + 1] = rid
    if hold ~= '0' then
      held = held - hold
      add(freed, 'held', A, 0 - hold)
      if string.find(flags, 'b', 1, true) then add(freed, 'held', A .. ':k:' .. holder, 0 - hold) end
      if user then add(freed, 'held', user, 0 - hold) end
      if session then add(freed, 'held', session, 0 - hold) end
    end
    if string.find(flags, 'k', 1, true) then end_lease(A .. ':cc:' .. holder, rid) end
    if string.find(flags, 'a', 1, true) then end_lease(A .. ':cc', rid) end
  end
  if fault then break end
  answer[3 * i - 2], answer[3 * i - 1], answer[3 * i] = code, tonumber(charged), bal
end

if booked then try('HSET', A, 'bal', bal, 'seq', seq) end
if booked and account[5] then count_month(A, opening - tonumber(bal), clock[1]) end
if #gone > 0 then
  try('HDEL', A .. ':rv', unpack(gone))
  try('ZREM', A .. ':rx', unpack(gone))
end
for name, sum in pairs(freed) do try('HINCRBY', name, 'held', string.format('%.0f', sum)) end
for name in pairs(periods) do
  if spent[name] then begin_period(name, spent[name], clock[1]) end
end
for name, sum in pairs(spent) do try('HINCRBY', name, 'spent', string.format('%.0f', sum)) end
for name, ended in pairs(leases) do try('ZREM', name, unpack(ended)) end
if fault then return fault end
for _, bucket in pairs(buckets) do save_bucket(bucket, now) end
return answer

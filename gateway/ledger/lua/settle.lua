-- Settles or voids a batch of calls of one account. Each call is settled exactly once, even if the batch is sent again.
-- KEYS: {a:<account>}
-- ARGV: per call: rid kid kind amount tokens at force meta
--       kind use | void; amount: the change of the balance, so "-5" for a charge; tokens: the true count, which
--       corrects the token limit; at: Redis time (µs) of the admission; force 1: the caller has searched the ledger
-- Returns NOACCT, or per call code, amount, balance (as text). Codes: OK; DUP: already settled, with the stored amount;
-- LATE: the hold did not exist any more, and the call is charged; AMENDED: the hold was reclaimed before, and only the
-- difference is charged; OLD: nothing is done, because the marker may have expired, and the caller searches the ledger.
--
-- Each call writes its line and its marker. All other changes are summed up and written once at the end of the batch.
-- An error stops the loop, and the sums of the lines written so far are still written: balance, number, sums and holds
-- always agree with the lines.
-- The loop is not a function on purpose: every run of the script would create a closure with its upvalues again, which
-- costs more than a call.

local OK, DUP, LATE, AMENDED, OLD, NOACCT = 0, 1, 2, 3, 4, 20
local WIDTH = 8
local MARKER_SURE = 23 * 3600 * 1000000  -- µs; an admission older than this may have lost its marker
local EXACT = 9007199254740992  -- 2^53: a sum of whole numbers that stays below it is exact in doubles

local A, count = KEYS[1], #ARGV / WIDTH
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local account = redis.call('HMGET', A, 'bal', 'seq')
local bal, seq, booked = account[1], tonumber(account[2]), false
if not bal then return { NOACCT } end
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

local function add(sums, field, name, amount)
  local before = sums[name] or 0
  local sum = before + amount
  if sum >= EXACT or sum <= -EXACT then  -- the sum would not be exact: the sum so far is written, and a new one begins
    try('HINCRBY', name, field, string.format('%.0f', before))
    sum = amount
  end
  sums[name] = sum
end

local function balance_after(amount)  -- as text
  local before = tonumber(bal)
  local after = before + amount
  local exact = before < EXACT and before > -EXACT and after < EXACT and after > -EXACT
  if exact then return string.format('%.0f', after) end
  booked = true
  try('HSET', A, 'bal', bal)
  try('HINCRBY', A, 'bal', amount)  -- far below zero, only the server adds exactly
  return try('HGET', A, 'bal')
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

local answer, done, gone, held, spent = {}, {}, {}, {}, {}
for i = 1, count do
  local p = (i - 1) * WIDTH
  local rid, kid, kind, amount = rids[i], ARGV[p + 2], ARGV[p + 3], ARGV[p + 4]
  local marker, record = done[rid] or settled[i], holds[i]
  local code, told, charge = OK, amount, kind == 'use' and amount  -- charge: the amount of the line, if any
  local hold, flags, holder
  if marker then
    local was, before = string.match(marker, '^(%S+) (%S+)')
    if was == 'reclaim' and charge then
      -- Exact in doubles: both are between 0 and -2^53, and x - x is 0, not -0.
      code, kind, charge = AMENDED, 'adj', string.format('%.0f', tonumber(amount) - tonumber(before))
    else
      code, told, charge = DUP, before, nil
    end
  elseif record then  -- six of nine fields without a table cost half of read_hold
    local tokens, ktpm, atpm
    hold, tokens, ktpm, atpm, flags, holder = string.match(record, '^%d+ (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) ')
    if not hold then fault = { err = 'ERR unreadable hold of ' .. rid } break end
    correct_tokens(A .. ':tpm:' .. holder, ktpm, ARGV[p + 5] - tokens)
    correct_tokens(A .. ':tpm', atpm, ARGV[p + 5] - tokens)
    if fault then break end
  elseif not charge then
    code, told, done[rid] = DUP, '0', 'void 0'
  elseif ARGV[p + 7] ~= '1' and now - tonumber(ARGV[p + 6]) > MARKER_SURE then
    code, told, charge = OLD, '0', nil
  else
    code = LATE
  end
  local id = '-'
  if charge then
    local after = balance_after(charge)
    if fault then break end
    id = try('XADD', A .. ':lg', '*', 'n', seq + 1, 'rid', rid, 'kind', kind, 'amount', charge,
             'bal', after, 'meta', ARGV[p + 8])
    if fault then break end
    bal, seq, booked = after, seq + 1, true
    if charge ~= '0' then add(spent, 'spent', A .. ':k:' .. kid, -charge) end
  end
  if hold or charge then
    done[rid] = (charge and 'use ' .. amount or 'void 0') .. ' ' .. id
    try('SET', marks[i], done[rid], 'PX', MARKER_MS)
    if fault and not charge then break end
  end
  if hold then
    gone[#gone + 1] = rid
    if hold ~= '0' then
      add(held, 'held', A, -hold)
      if string.find(flags, 'b', 1, true) then add(held, 'held', A .. ':k:' .. holder, -hold) end
    end
    if string.find(flags, 'k', 1, true) then end_lease(A .. ':cc:' .. holder, rid) end
    if string.find(flags, 'a', 1, true) then end_lease(A .. ':cc', rid) end
  end
  if fault then break end
  answer[3 * i - 2], answer[3 * i - 1], answer[3 * i] = code, tonumber(told), bal
end

if booked then try('HSET', A, 'bal', bal, 'seq', seq) end
if #gone > 0 then
  try('HDEL', A .. ':rv', unpack(gone))
  try('ZREM', A .. ':rx', unpack(gone))
end
for name, sum in pairs(held) do try('HINCRBY', name, 'held', string.format('%.0f', sum)) end
for name, sum in pairs(spent) do try('HINCRBY', name, 'spent', string.format('%.0f', sum)) end
for name, ended in pairs(leases) do try('ZREM', name, unpack(ended)) end
if fault then return fault end
for _, bucket in pairs(buckets) do save_bucket(bucket, now) end
return answer

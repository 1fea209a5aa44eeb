-- Gives back the charge of a settled call, whole or in part, once per operation.
-- KEYS: {a:<account>}
-- ARGV: operation rid amount ('' for all that is left) kid meta most (no balance may pass it)
--       charged_at (Unix milliseconds), then of the call's lines that have left the store: n and hash of the archive
--       checkpoint that covers them ('' if they were not looked for), and their sum; then the ids of the call's lines in
--       the store. The lines are read only if the call's marker has expired
-- Returns code, amount, balance. Codes: OK; DUP: repeated, with the stored amount; CLASH: the operation did something
-- else; CAP: the balance would pass `most`; MORE: more than is left of the charge, with what is left; UNKNOWN: no line
-- of the call, or no kid; MOVED: the archive checkpoint is another one; NOACCT.
-- {a:…}:rf has per call what was refunded, and as "op <operation>" the call of each operation.

local OK, DUP, CLASH, CAP, MORE, UNKNOWN, MOVED, NOACCT = 0, 1, 2, 3, 4, 5, 6, 20

local A, operation, rid, amount, kid, meta = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local bal = redis.call('HGET', A, 'bal')
if not bal then return { NOACCT, '0', '0' } end

local before = redis.call('HGET', A .. ':op', operation)
if before then
  local kind, booked = string.match(before, '^(%S+) (.*)$')
  local same = kind == 'refund' and redis.call('HGET', A .. ':rf', 'op ' .. operation) == rid
  return { same and (amount == '' or amount == booked) and DUP or CLASH, booked, bal }
end

local CHARGES = { use = true, reclaim = true, adj = true, refund = true }
local function charge_in_lines()  -- nil if there is no line, or only one that amends another
  local sum, whole = 0, false
  if ARGV[8] ~= '' and ARGV[10] ~= '' then sum, whole = -ARGV[10], true end
  for i = 11, #ARGV do
    local line = redis.call('XRANGE', A .. ':lg', ARGV[i], ARGV[i])[1]
    local fields = {}
    for j = 1, line and #line[2] or 0, 2 do fields[line[2][j]] = line[2][j + 1] end
    if fields.rid == rid and CHARGES[fields.kind] then
      sum, whole = sum - fields.amount, whole or fields.kind == 'use' or fields.kind == 'reclaim'
    end
  end
  return whole and sum or nil
end

if ARGV[8] ~= '' then
  local archived = redis.call('HMGET', A .. ':ca', 'n', 'hash')
  if (archived[1] or '0') ~= ARGV[8] or (archived[2] or '') ~= ARGV[9] then return { MOVED, '0', bal } end
end
local kind, charged, id = string.match(redis.call('GET', A .. ':st:' .. rid) or '', '^(%S+) (%S+) ?(%S*)')
local charge = kind and -tonumber(charged) or charge_in_lines()
if not charge or kid == '' then return { UNKNOWN, '0', bal } end
local left = charge - tonumber(redis.call('HGET', A .. ':rf', rid) or '0')
if amount == '' then amount = string.format('%.0f', left) end
if left <= 0 or tonumber(amount) > left then return { MORE, string.format('%.0f', math.max(0, left)), bal } end
if tonumber(bal) + tonumber(amount) > tonumber(ARGV[6]) then return { CAP, amount, bal } end

write_line(A, operation, 'refund', amount, meta)
-- Money for a charge of an earlier period or month is not given back to the current one.
local clock, charged_at = redis.call('TIME'), tonumber(ARGV[7]) / 1000
for _, name in ipairs({ A .. ':k:' .. kid, member_of(A, kid) }) do
  local every = redis.call('HGET', name, 'every')
  if every and period_of(every, charged_at) ~= period_of(every, clock[1]) then
    begin_period(name, 0, clock[1])
    redis.call('HINCRBY', name, 'base', '-' .. amount)
  else
    begin_period(name, -tonumber(amount), clock[1])
  end
  redis.call('HINCRBY', name, 'spent', '-' .. amount)
end
local session = session_since(A, meta, charged_at * 1000000 + 999)  -- it has milliseconds
if session then give_back(session, amount) end
if period_of('month', charged_at) == period_of('month', clock[1]) then count_month(A, -tonumber(amount), clock[1]) end
redis.call('HINCRBY', A .. ':rf', rid, amount)
redis.call('HSET', A .. ':rf', 'op ' .. operation, rid)
redis.call('HSET', A .. ':op', operation, 'refund ' .. amount)
-- A worker that was only paused may still settle a reclaimed call. The charge is final now, so it settles nothing.
if kind == 'reclaim' then mark(A, rid, 'use', charged, id) end
return { OK, amount, redis.call('HGET', A, 'bal') }

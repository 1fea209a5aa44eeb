-- Claims an Idempotency-Key for a call, or returns the state of the call that claimed it before.
-- KEYS: {a:<account>}   ARGV: name (hash of the Idempotency-Key) digest (of the request) rid kid meta (of a refund's line)
-- Returns code, the rid of the call that owns the record, and for DONE the answer's head and body.
-- A call is alive for ten seconds after its claim, and while its hold's lease is renewed. A dead call is undone, so
-- that only the call that replaces it is charged.

local CLAIMED, BUSY, OTHER, DONE, LOST = 0, 1, 2, 3, 4
local ADMISSION = 10000000  -- longest time (µs) from a claim to its hold
local KEPT_MS = '86400000'

local A, name, digest, rid, kid, meta = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local record = A .. ':id:' .. name
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function give_back_to_session(booked, amount)  -- booked: the id of the line that the reclaim wrote
  local line = redis.call('XRANGE', A .. ':lg', booked, booked)[1]
  for i = 1, line and #line[2] or 0, 2 do
    local at = string.match(booked, '^%d+') * 1000
    local session = line[2][i] == 'meta' and session_since(A, line[2][i + 1], at)
    if session then give_back(session, amount) end
  end
end

local function undo(dead, payer, note)  -- false if the call was settled: then nothing is undone
  local text = redis.call('HGET', A .. ':rv', dead)
  if text then
    release(A, dead, read_hold(text), session_held(A, text))
    redis.call('HDEL', A .. ':rv', dead)
    redis.call('ZREM', A .. ':rx', dead)
  end
  local id = '-'
  local kind, amount, booked = string.match(redis.call('GET', A .. ':st:' .. dead) or '', '^(%S+) (%S+) ?(%S*)')
  if kind == 'use' then return false end
  if kind == 'reclaim' and amount ~= '0' then
    amount = string.sub(amount, 2)
    local _, line = write_line(A, dead, 'refund', amount, note)
    spend(A, payer, amount, clock[1])
    give_back_to_session(booked, amount)
    id = line
  end
  mark(A, dead, 'void', '0', id)  -- a worker that was only paused can then neither admit nor settle it
  return true
end

local old = redis.call('HMGET', record, 'digest', 'rid', 'state', 'until', 'kid', 'meta')
if old[1] then
  local before = old[2]
  if old[1] ~= digest then return { OTHER, before } end
  if before == rid then return { CLAIMED, rid } end  -- the reply to the first copy was lost
  if old[3] == 'done' then return { DONE, before, unpack(redis.call('HMGET', record, 'head', 'body')) } end
  if old[3] == 'lost' then return { LOST, before } end
  local lease = redis.call('ZSCORE', A .. ':rx', before)
  if tonumber(old[4]) > now or (lease and tonumber(lease) > now) then return { BUSY, before } end
  if not undo(before, old[5], old[6]) then
    redis.call('HSET', record, 'state', 'lost')
    return { LOST, before }
  end
end
redis.call('HSET', record, 'digest', digest, 'rid', rid, 'state', 'open', 'kid', kid, 'meta', meta,
           'until', string.format('%.0f', now + ADMISSION))
redis.call('PEXPIRE', record, KEPT_MS)
return { CLAIMED, rid }

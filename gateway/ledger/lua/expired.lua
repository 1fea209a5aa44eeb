-- Charges expired holds at their last checkpoint: never the full hold, never zero after output was delivered, and never
-- money that another call holds.

-- granted, keys, members, sessions: holds of the running script that are not written yet, in all, as keys[kid].granted,
-- as members[name].granted and as sessions[name].granted.
local function collectable(A, hold, session, granted, keys, members, sessions, seconds)
  local owed, amount = tonumber(hold.used), tonumber(hold.amount)
  if owed <= amount then return owed end
  local account = redis.call('HMGET', A, 'bal', 'held', 'floor')
  local bal, floor = tonumber(account[1]), tonumber(account[3] or '0')
  local left = bal - tonumber(account[2]) - lowest_balance(A, bal, floor, seconds) - granted
  local key, name = keys[hold.kid], member_of(A, hold.kid)
  local taken = (key and key.granted or 0) + (has(hold, 'b') and 0 or amount)
  local apart = (members[name or ''] and members[name].granted or 0) + (has(hold, 'u') and 0 or amount)
  local beside = sessions[session or ''] and sessions[session].granted or 0
  return math.min(owed, amount + room_beyond(A, left, A .. ':k:' .. hold.kid, taken, name, apart, session, beside))
end

local function reclaim(A, now, most, granted, keys, members, sessions)
  local due = redis.call('ZRANGEBYSCORE', A .. ':rx', '-inf', now, 'LIMIT', 0, most)
  for _, rid in ipairs(due) do
    local text = redis.call('HGET', A .. ':rv', rid)
    if text then
      local hold = read_hold(text)
      local session = session_held(A, text)
      local charge = collectable(A, hold, session, granted, keys, members, sessions, now / 1000000)
      local amount = charge == 0 and '0' or string.format('-%.0f', charge)
      release(A, rid, hold, session)
      local _, id = write_line(A, rid, 'reclaim', amount, hold.note, tonumber(hold.used) - charge)
      spend(A, hold.kid, amount, now / 1000000)
      if session and charge > 0 then redis.call('HINCRBY', session, 'spent', string.format('%.0f', charge)) end
      mark(A, rid, 'reclaim', amount, id)
      redis.call('HDEL', A .. ':rv', rid)
    end
    redis.call('ZREM', A .. ':rx', rid)
  end
  return #due
end

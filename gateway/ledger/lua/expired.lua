-- Charges expired holds at their last checkpoint: never the full hold, never zero after output was delivered, and never
-- money that another call holds.

-- granted, keys, members: holds of the running script that are not written yet, in all, as keys[kid].granted and as
-- members[name].granted.
local function collectable(A, hold, granted, keys, members, seconds)
  local owed, amount = tonumber(hold.used), tonumber(hold.amount)
  if owed <= amount then return owed end
  local account = redis.call('HMGET', A, 'bal', 'held', 'floor')
  local bal, floor = tonumber(account[1]), tonumber(account[3] or '0')
  local left = bal - tonumber(account[2]) - lowest_balance(A, bal, floor, seconds) - granted
  local key, name = keys[hold.kid], member_of(A, hold.kid)
  local taken = (key and key.granted or 0) + (has(hold, 'b') and 0 or amount)
  local apart = (members[name or ''] and members[name].granted or 0) + (has(hold, 'u') and 0 or amount)
  return math.min(owed, amount + room_beyond(left, A .. ':k:' .. hold.kid, taken, name, apart))
end

local function reclaim(A, now, most, granted, keys, members)
  local due = redis.call('ZRANGEBYSCORE', A .. ':rx', '-inf', now, 'LIMIT', 0, most)
  for _, rid in ipairs(due) do
    local text = redis.call('HGET', A .. ':rv', rid)
    if text then
      local hold = read_hold(text)
      local charge = collectable(A, hold, granted, keys, members, now / 1000000)
      local amount = charge == 0 and '0' or string.format('-%.0f', charge)
      release(A, rid, hold)
      local _, id = write_line(A, rid, 'reclaim', amount, hold.note, tonumber(hold.used) - charge)
      spend(A, hold.kid, amount, now / 1000000)
      mark(A, rid, 'reclaim', amount, id)
      redis.call('HDEL', A .. ':rv', rid)
    end
    redis.call('ZREM', A .. ':rx', rid)
  end
  return #due
end

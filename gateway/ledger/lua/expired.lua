-- Charges expired holds at their last checkpoint: never the full hold, and never zero after output was delivered.

local function reclaim(A, now, most)
  local due = redis.call('ZRANGEBYSCORE', A .. ':rx', '-inf', now, 'LIMIT', 0, most)
  for _, rid in ipairs(due) do
    local text = redis.call('HGET', A .. ':rv', rid)
    if text then
      local hold = read_hold(text)
      local amount = hold.used == '0' and '0' or '-' .. hold.used
      release(A, rid, hold)
      local _, id = write_line(A, rid, 'reclaim', amount, hold.note)
      spend(A, hold.kid, amount)
      mark(A, rid, 'reclaim', amount, id)
      redis.call('HDEL', A .. ':rv', rid)
    end
    redis.call('ZREM', A .. ':rx', rid)
  end
  return #due
end

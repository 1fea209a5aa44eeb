-- Takes deliveries that are due. They are due again after `lease` ms, for another sender, if this one ends meanwhile.
-- KEYS: due, deliveries, created   ARGV: most lease
-- Returns member and text of each.

local now = stamp()
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.3f', now), 'LIMIT', 0, ARGV[1])
local taken = {}
for _, member in ipairs(members) do
  local text = redis.call('HGET', KEYS[2], member)
  if text then
    redis.call('ZADD', KEYS[1], string.format('%.3f', now + tonumber(ARGV[2])), member)
    taken[#taken + 1], taken[#taken + 2] = member, text
  else
    redis.call('ZREM', KEYS[1], member)
    redis.call('ZREM', KEYS[3], member)
  end
end
return taken

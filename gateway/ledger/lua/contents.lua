-- Returns what keys hold. Reads only, so it runs on a replica.
-- KEYS: names of any slot, so not for a cluster   ARGV: most (elements of a key that are returned at once)
-- Returns for each key its kind, the Unix time in ms at which it expires (-1 for never), and its elements as a flat list.
-- The kind is 'none' if there is no such key, and 'more' if it has more elements or is a stream: read it by itself.

local most = tonumber(ARGV[1])
local SIZE = { hash = 'HLEN', set = 'SCARD', zset = 'ZCARD' }
local ALL = { hash = { 'HGETALL' }, set = { 'SMEMBERS' }, zset = { 'ZRANGE', 0, -1, 'WITHSCORES' } }

local function contents(name, kind)
  if kind == 'string' then
    return kind, { redis.call('GET', name) }
  elseif kind == 'none' then
    return kind, {}
  elseif not SIZE[kind] or redis.call(SIZE[kind], name) > most then
    return 'more', {}
  end
  local read = ALL[kind]
  return kind, redis.call(read[1], name, unpack(read, 2))
end

local found = {}
for i, name in ipairs(KEYS) do
  local kind, values = contents(name, redis.call('TYPE', name).ok)
  found[3 * i - 2], found[3 * i - 1], found[3 * i] = kind, redis.call('PEXPIRETIME', name), values
end
return found

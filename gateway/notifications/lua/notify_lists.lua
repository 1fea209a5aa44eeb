-- Lists of deliveries, shared by the scripts of the queue: those that wait, and those that failed. Beside a list,
-- `LIST:of:ACCOUNT` has the members of one account ('' for the gateway itself). `LIST:accounts` has the accounts by the
-- number of their members; of two with as many, the one with the older member is the higher. A version before kept
-- neither: `notify_index` adds its deliveries.

local function weigh(list, account)
  if account == '' then return end
  local oldest = redis.call('ZRANGE', list .. ':of:' .. account, 0, 0, 'WITHSCORES')
  if oldest[2] then
    local count = math.min(redis.call('ZCARD', list .. ':of:' .. account), 2047)
    local weight = count * 4398046511104 - math.floor(tonumber(oldest[2]))  -- 2^42; together 53 bits, so it is exact
    redis.call('ZADD', list .. ':accounts', string.format('%.0f', weight), account)
  else
    redis.call('ZREM', list .. ':accounts', account)
  end
end

local function put(list, account, member, score)
  redis.call('ZADD', list, score, member)
  redis.call('ZADD', list .. ':of:' .. account, score, member)
  weigh(list, account)
end

local function take(list, account, member)
  redis.call('ZREM', list, member)
  redis.call('ZREM', list .. ':of:' .. account, member)
  weigh(list, account)
end

local function drop(list, account, member, deliveries, due)
  take(list, account, member)
  if due then redis.call('ZREM', due, member) end
  return redis.call('HDEL', deliveries, member)
end

-- The account that has the most members, or '', and its oldest member.
local function next_to_go(list)
  local account = redis.call('ZRANGE', list .. ':accounts', 0, 0, 'REV')[1]
  if account then return account, redis.call('ZRANGE', list .. ':of:' .. account, 0, 0)[1] end
  local oldest = redis.call('ZRANGE', list, 0, 99)
  for _, member in ipairs(oldest) do
    if not redis.call('ZSCORE', list .. ':of:', member) then return '', member end
  end
  return '', oldest[1]
end

-- Drops the oldest members of the account beyond its `share`, then, while there are more than `most`, the oldest one of
-- the account that has the most; the gateway's own only if nothing else is there. Returns their number.
local function shrink(list, account, share, most, deliveries, due)
  local own, dropped = list .. ':of:' .. account, 0
  local over = account ~= '' and redis.call('ZCARD', own) - share or 0
  if over > 0 then
    for _, member in ipairs(redis.call('ZRANGE', own, 0, over - 1)) do
      dropped = dropped + drop(list, account, member, deliveries, due)
    end
  end
  while redis.call('ZCARD', list) > most do
    local whose, member = next_to_go(list)
    if not member then  -- it has none: a version before removed them
      redis.call('ZREM', list .. ':accounts', whose)
    else
      dropped = dropped + drop(list, whose, member, deliveries, due)
    end
  end
  return dropped
end

-- This moment in ms, with three decimals: deliveries of one ms keep their order.
local function stamp()
  local clock = redis.call('TIME')
  return clock[1] * 1000 + clock[2] / 1000
end

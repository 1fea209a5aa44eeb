-- Returns what a backup has of an account, at one moment. Reads only. The ledger is not included: it only grows, so the
-- caller reads it in pages. The same holds for the operations and the refunds if there are more than `most` of either.
-- Of an account with more than `most_keys` keys, the ids are not included, and the hashes only of those keys that lines
-- after `since` and the running calls name, with the hashes of their users; none of them without `since`, or if there
-- are more than `most_lines` of these lines. Of an archive checkpoint with more fields than `most_keys` only its line.
-- KEYS: {a:<account>}   ARGV: most, most_keys, since (id of a line, '' for none), most_lines
-- Returns the numbers of operations, refunds, keys and fields of the archive checkpoint, the id of the last ledger line
-- ('' for none), then as flat lists the account's hash, its archive checkpoint, its holds, their expiries (rid, µs, …),
-- the ids of its keys, per key its id and its hash, per user of a key the user and the member's hash, the operations and
-- the refunds; last the lines after `since`, at most one more than `most_lines`.

local A, most, most_keys, since, most_lines = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local operations, refunds = redis.call('HLEN', A .. ':op'), redis.call('HLEN', A .. ':rf')
local count, carried = redis.call('SCARD', A .. ':ks'), redis.call('HLEN', A .. ':ca')
local whole = math.max(operations, refunds) <= most
local last = redis.call('XREVRANGE', A .. ':lg', '+', '-', 'COUNT', 1)
local holds, lines = redis.call('HGETALL', A .. ':rv'), {}
local ids, named = {}, {}
if count <= most_keys then
  ids = redis.call('SMEMBERS', A .. ':ks')
  named = ids
elseif since ~= '' then
  lines = redis.call('XRANGE', A .. ':lg', '(' .. since, '+', 'COUNT', most_lines + 1)
  if #lines <= most_lines then
    local seen = {}
    local function name(kid)
      if kid and not seen[kid] then
        seen[kid] = true
        named[#named + 1] = kid
      end
    end
    local function key_of(meta)
      return string.match(meta, '^{"key":"([^"]+)"') or string.match(meta, '^%["([^"]+)"')
    end
    for _, line in ipairs(lines) do
      for j = 1, #line[2], 2 do
        if line[2][j] == 'meta' then name(key_of(line[2][j + 1])) end
      end
    end
    for i = 2, #holds, 2 do name(string.match(holds[i], '^%d+ %d+ %d+ %d+ %d+ %S+ (%S+) ')) end
  end
end
local keys, members, seen = {}, {}, {}
for i, kid in ipairs(named) do
  keys[2 * i - 1], keys[2 * i] = kid, redis.call('HGETALL', A .. ':k:' .. kid)
  local member = member_of(A, kid)
  if member and not seen[member] then
    seen[member] = true
    members[#members + 1] = string.sub(member, #A + 4)
    members[#members + 1] = redis.call('HGETALL', member)
  end
end
local checkpoint
if carried <= most_keys then
  checkpoint = redis.call('HGETALL', A .. ':ca')
else
  local line = redis.call('HMGET', A .. ':ca', 'n', 'bal', 'id', 'hash')
  checkpoint = { 'n', line[1], 'bal', line[2], 'id', line[3], 'hash', line[4] }
end
return { operations, refunds, count, carried, last[1] and last[1][1] or '',
         redis.call('HGETALL', A), checkpoint, holds, redis.call('ZRANGE', A .. ':rx', 0, -1, 'WITHSCORES'),
         ids, keys, members,
         whole and redis.call('HGETALL', A .. ':op') or {}, whole and redis.call('HGETALL', A .. ':rf') or {}, lines }

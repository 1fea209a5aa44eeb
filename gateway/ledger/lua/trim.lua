#!lua flags=allow-oom
-- Moves the archive checkpoint of one account past lines that the database has, and removes them from the stream.
-- KEYS: {a:<account>}
-- ARGV: n and hash of the checkpoint that the caller read ('0' and '' for none), the minimum age (µs) of a line, then
--       the new checkpoint: n bal id hash, then the sum of lines 1 … n for each key with a changed sum: kid sum …
-- It runs on a full server (allow-oom), because it frees memory.
-- Returns OK. Returns MOVED if another process has trimmed since, UNKNOWN if no line has that id, number and balance,
-- YOUNG if the last line is below the minimum age. These three change nothing.

local OK, MOVED, UNKNOWN, YOUNG = 0, 1, 2, 3

local A, age = KEYS[1], tonumber(ARGV[3])
local n, bal, id, hash = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local carry = redis.call('HMGET', A .. ':ca', 'n', 'hash')
if (carry[1] or '0') ~= ARGV[1] or (carry[2] or '') ~= ARGV[2] then return MOVED end

local line = redis.call('XRANGE', A .. ':lg', id, id)[1]
if not line then return UNKNOWN end
local fields = {}
for i = 1, #line[2], 2 do fields[line[2][i]] = line[2][i + 1] end
if fields.n ~= n or fields.bal ~= bal then return UNKNOWN end

local clock = redis.call('TIME')
local ms, step = string.match(id, '^(%d+)%-(%d+)$')
if clock[1] * 1000000 + clock[2] - tonumber(ms) * 1000 < age then return YOUNG end

redis.call('HSET', A .. ':ca', 'n', n, 'bal', bal, 'id', id, 'hash', hash)
for i = 8, #ARGV, 2 do redis.call('HSET', A .. ':ca', 'k:' .. ARGV[i], ARGV[i + 1]) end
redis.call('XTRIM', A .. ':lg', 'MINID', ms .. '-' .. string.format('%.0f', tonumber(step) + 1))
return OK

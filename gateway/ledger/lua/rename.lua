-- Renames keys. One that is not there is passed over: it has expired, or was renamed before.
-- KEYS: the old and the new name of each in turn, of any slot, so not for a cluster
-- Returns how many were renamed.

local renamed = 0
for i = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('RENAME', KEYS[i], KEYS[i + 1])
    renamed = renamed + 1
  end
end
return renamed

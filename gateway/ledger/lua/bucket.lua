-- GCRA as a meter: `level` units are in use and drain at `limit` per minute. The burst equals the limit.
-- The stored form is "level stamp limit" and not the single arrival time, stamp + level * 60 s / limit: a double near
-- 1.8e15 µs has a resolution of a quarter of a microsecond. The three parts stay exact, so a burst of n is n for any
-- limit. When a limit changes, the level is rescaled, so that the arrival time does not change.

local MINUTE = 60000000  -- µs

local function open_bucket(name, limit, stored, now)
  local level = 0
  if stored then
    local units, stamp, before = string.match(stored, '^(%S+) (%S+) (%S+)$')
    level = tonumber(units)
    if tonumber(before) ~= limit then level = level * limit / tonumber(before) end
    local idle = now - tonumber(stamp)
    if idle > 0 then level = level - idle * limit / MINUTE end
    if level < 0 then level = 0 end
  end
  return { name = name, limit = limit, level = level, dirty = false }
end

local function pour(bucket, units)
  if not bucket then return end
  bucket.level = math.max(0, bucket.level + units)
  bucket.dirty = true
end

local function save_bucket(bucket, now)  -- the key expires when the bucket is empty
  if not bucket or not bucket.dirty then return end
  local left = math.ceil(bucket.level * 60000 / bucket.limit) + 1
  redis.call('SET', bucket.name, string.format('%.9f %.0f %d', bucket.level, now, bucket.limit), 'PX', left)
end

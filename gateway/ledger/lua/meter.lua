-- Computes the room that is left in a bucket, and the wait for more.

local SLACK = 1e-6       -- units; more than the rounding error of one drain, far below one request or token

local function wait_for(bucket, units)  -- µs until `units` fit; 0 if they fit now
  if not bucket then return 0 end
  local over = bucket.level + units - bucket.limit
  if over <= SLACK then return 0 end
  return math.ceil(over * MINUTE / bucket.limit)
end

local function room(bucket)
  return math.max(0, math.floor(bucket.limit - bucket.level + SLACK))
end

-- Notes whose the members of a list are, for those of a version before.
-- KEYS: list   ARGV: account and member, of each

for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i + 1])
  if score then put(KEYS[1], ARGV[i], ARGV[i + 1], score) end
end
return 0

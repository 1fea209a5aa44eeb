-- Changes the budget of a member of an account.
-- KEYS: {a:<account>}   ARGV: user, then field value …; the value '' removes one
-- Returns code, and for OK what change_budget returns. UNBOUNDED: a period without a budget; then nothing is changed.

local OK, UNBOUNDED = 0, 2

local A, name, wanted = KEYS[1], KEYS[1] .. ':u:' .. ARGV[1], {}
for i = 2, #ARGV, 2 do wanted[ARGV[i]] = ARGV[i + 1] end
local from, period = change_budget(A, name, wanted)
if not from then return { UNBOUNDED, '', '' } end
return { OK, from, period }

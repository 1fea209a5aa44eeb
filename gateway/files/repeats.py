"""Idempotency-Key of requests that make a file or a batch: a request makes one, also after a crash at any moment.

::

    {a:<account>}:ir:<hash>     string  digest of the request, and the id of what it made; for 24 hours

The script that stores what was made writes it in the same step, so there is no claim that a dead process leaves.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

from gateway.errors import InvalidValue

#: For scripts: `made_before` returns an id and whether the request was the same, `note_made` stores both.
LUA = """
local function made_before(A, name, digest, kind)
  local old = name ~= '' and redis.call('GET', A .. ':ir:' .. name)
  local before, id = string.match(old or '', '^(%S+) (%S+)$')
  if id and redis.call('HEXISTS', A .. kind, id) == 1 then return id, before == digest end
end
local function note_made(A, name, digest, id)
  if name ~= '' then redis.call('SET', A .. ':ir:' .. name, digest .. ' ' .. id, 'EX', 86400) end
end
"""


class Repeat(Struct, frozen=True):
    """What a repetition of a request is known by; `NO_REPEAT` without an Idempotency-Key."""

    name: str = ""  # a hash of the Idempotency-Key and of the user, who cannot see what others make
    digest: str = "-"

    @classmethod
    def of(cls, key: str, user: str, digest: str) -> Repeat:
        """That of a request with this Idempotency-Key."""
        return cls(hashlib.sha256(f"{user}\0{key}".encode()).hexdigest(), digest)


NO_REPEAT = Repeat()


def refuse_other() -> InvalidValue:
    """The error of a request whose Idempotency-Key another request had."""
    return InvalidValue("This Idempotency-Key was used before, with another request")

"""The records of files in the store, in the hash slot of their account.

::

    {a:<account>}:fl            hash    file id → record, JSON
    {a:<account>}:fb            hash    file id → bytes; `total` is the sum
    {a:<account>}:fz            zset    file id → milliseconds of its creation
    files:due:<place>           zset    "<account> <file id>" → seconds at which the file expires
    files:places                set     the places that have files

The entry in `files:due` is written before the record, so a file whose creation was interrupted is deleted, too. Sharp
edge: a key that belongs to a user sees the files of that user only, as with usage; a key without one sees all files of
its account.
"""

from __future__ import annotations

import re
import secrets
import time

import msgspec
from msgspec import Struct

from gateway.errors import InvalidValue, NotFound
from gateway.files.repeats import LUA, NO_REPEAT, Repeat, refuse_other
from gateway.store.command import Script
from gateway.store.links import Links, slot
from gateway.store.positions import page_of_members, position_behind

ID = re.compile(r"file-[0-9a-f]{32}", re.ASCII)
PLACES = "files:places"
PAGE = 100  # records read at once
FOREIGN = 86_400  # seconds after its end for which the machine of a file may still delete it itself

_ADD = Script(
    LUA
    + """
local A, id, record, bytes, order = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local most_files, most_bytes, name, digest = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]
if redis.call('EXISTS', A) == 0 then return {3} end
local made, is_same = made_before(A, name, digest, ':fl')
if made and made ~= id then return {is_same and 4 or 5, made} end
local before = tonumber(redis.call('HGET', A .. ':fb', id) or '0')
local total = tonumber(redis.call('HGET', A .. ':fb', 'total') or '0')
if not redis.call('HGET', A .. ':fl', id) and redis.call('HLEN', A .. ':fl') >= most_files then return {1} end
if total + bytes - before > most_bytes then return {2} end
redis.call('HSET', A .. ':fl', id, record)
redis.call('HSET', A .. ':fb', id, bytes)
redis.call('HINCRBY', A .. ':fb', 'total', bytes - before)
redis.call('ZADD', A .. ':fz', order, id)
note_made(A, name, digest, id)
return {0}
"""
)
_REMOVE = Script("""
local A, id = KEYS[1], ARGV[1]
local bytes = redis.call('HGET', A .. ':fb', id)
if bytes then
  redis.call('HDEL', A .. ':fb', id)
  redis.call('HINCRBY', A .. ':fb', 'total', 0 - bytes)
end
redis.call('ZREM', A .. ':fz', id)
return redis.call('HDEL', A .. ':fl', id)
""")
#: Codes of _ADD; any other: there is no such account.
ADDED, MANY, LARGE, REPEATED, OTHER = 0, 1, 2, 4, 5
UNLIMITED = 2**53


class StoredFile(Struct, frozen=True):
    """One file; times are Unix seconds."""

    id: str
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str  # batch, batch_output
    place: str  # the id of its storage
    user: str = ""  # the user whose key has made it; empty for a service key

    def is_seen_by(self, user: str) -> bool:
        """Whether a key of `user` sees it; "" is a service key."""
        return not user or user == self.user

    def document(self) -> dict[str, object]:
        """The file in the API's form."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        }


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(StoredFile)


def new_file_id() -> str:
    """`file-` and 32 hex digits."""
    return f"file-{secrets.token_hex(16)}"


class FileRecords:
    """The records of all accounts."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def announce(self, account: str, file_id: str, *, place: str, expires_at: int) -> None:
        """Note when a file that is about to be stored expires."""
        due = f"files:due:{place}"
        await self._links.link(PLACES).call_repeatable("SADD", PLACES, place)
        await self._links.link(due).call_repeatable("ZADD", due, expires_at, f"{account} {file_id}")

    async def add(
        self,
        account: str,
        file: StoredFile,
        *,
        most_files: int = UNLIMITED,
        most_bytes: int = UNLIMITED,
        repeat: Repeat = NO_REPEAT,
    ) -> str:
        """Store the record of an announced file; its id, or that of the file which the same request made before.

        InvalidValue if the account has too many files, or bytes in them.
        """
        name, at = slot(account), time.time_ns() // 1_000_000
        args = (file.id, _encode(file), file.bytes, at, most_files, most_bytes, repeat.name, repeat.digest)
        code, *made = await self._links.link(name).eval(_ADD, [name], args, repeatable=True)
        if code == ADDED:
            return file.id
        if code == REPEATED:
            return str(made[0].decode())
        if code == OTHER:
            raise refuse_other()
        if code not in (MANY, LARGE):
            raise NotFound("There is no such account")
        what = f"{most_files} files" if code == MANY else f"{most_bytes} bytes in files"
        raise InvalidValue(
            f"The account has no room for this file: it may have {what}. Delete files that are no longer needed.",
            code="file_quota_exceeded",
            param="file",
        )

    async def find(self, account: str, file_id: str, *, user: str = "") -> StoredFile:
        """The file, if a key of `user` sees it; NotFound."""
        found = None
        if ID.fullmatch(file_id):
            name = slot(account)
            found = await self._links.link(name).call_repeatable("HGET", f"{name}:fl", file_id)
        file = _decoder.decode(found) if found is not None else None
        if file is None or not file.is_seen_by(user) or file.expires_at <= time.time():
            raise NotFound(f"No such File object: {file_id[:64]}", param="id")
        return file

    async def remove(self, account: str, file: StoredFile) -> None:
        """Delete the record of a file."""
        await self._forget(account, file.id)
        due = f"files:due:{file.place}"
        await self._links.link(due).call_repeatable("ZREM", due, f"{account} {file.id}")

    async def page(
        self, account: str, *, user: str, purpose: str, after: str, limit: int, newest_first: bool
    ) -> tuple[list[StoredFile], bool]:
        """Up to `limit` files behind the file `after`, and whether there are more; InvalidValue."""
        name, now = slot(account), time.time()
        link = self._links.link(name)
        start, found = 0, list[StoredFile]()
        if after:
            begin = await position_behind(link, f"{name}:fz", after, reverse=newest_first)
            if begin is None:
                raise InvalidValue("Invalid 'after': there is no such file", param="after")
            start = begin
        while ids := await page_of_members(link, f"{name}:fz", start, PAGE, reverse=newest_first):
            start += len(ids)
            for text in await link.call_repeatable("HMGET", f"{name}:fl", *ids):
                file = _decoder.decode(text) if text is not None else None
                if file is None or not file.is_seen_by(user) or file.expires_at <= now:
                    continue
                if purpose and file.purpose != purpose:
                    continue
                if len(found) == limit:
                    return found, True
                found.append(file)
        return found, False

    async def expired(self, place: str, *, most: int) -> list[tuple[str, str]]:
        """Accounts and ids of files of a place whose time is over, oldest first."""
        due = f"files:due:{place}"
        args = ("-inf", int(time.time()), "LIMIT", 0, most)
        entries = await self._links.link(due).call_repeatable("ZRANGEBYSCORE", due, *args)
        return [_owner(entry) for entry in entries]

    async def forget(self, place: str, account: str, file_id: str) -> None:
        """Delete the record of an expired file whose content is deleted."""
        await self._forget(account, file_id)
        due = f"files:due:{place}"
        await self._links.link(due).call_repeatable("ZREM", due, f"{account} {file_id}")

    async def forget_foreign(self, place: str, *, most: int) -> int:
        """Delete records of expired files of other places, which may be gone for good; their number."""
        done = 0
        for other in await self._links.link(PLACES).call_repeatable("SMEMBERS", PLACES):
            if other.decode() == place or done >= most:
                continue
            due = f"files:due:{other.decode()}"
            args = ("-inf", int(time.time()) - FOREIGN, "LIMIT", 0, most - done)
            for entry in await self._links.link(due).call_repeatable("ZRANGEBYSCORE", due, *args):
                await self.forget(other.decode(), *_owner(entry))
                done += 1
        return done

    async def _forget(self, account: str, file_id: str) -> None:
        name = slot(account)
        await self._links.link(name).eval(_REMOVE, [name], [file_id], repeatable=True)


def _owner(entry: bytes) -> tuple[str, str]:
    account, _, file_id = entry.decode().rpartition(" ")
    return account, file_id

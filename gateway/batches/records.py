"""The records of batches in the store, in the hash slot of their account.

::

    {a:<account>}:bt            hash    batch id → record, JSON; after its creation only its runner writes it
    {a:<account>}:bc            hash    batch id → seconds at which a caller has cancelled it
    {a:<account>}:bz            zset    batch id → milliseconds of its creation
    {a:<account>}:bo            set     batches that have not ended
    {batches}:made              zset    batch id → milliseconds of its creation: the batches of all accounts
    {batches}:of                hash    batch id → account
    batches:open:<place>        zset    "<account> <batch id>" → seconds of its creation
    batches:due:<place>         zset    "<account> <batch id>" → seconds at which its record is deleted
    batches:places              set     the places that have batches

Each field has one writer, so nothing is compared before it is written. The entry in `batches:open` comes before the
record, so no batch is without a runner. So do those in `{batches}`, which a list passes over while there is no record.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

import msgspec

from gateway.batches.all_batches import AllBatches, Position, members_with_scores, newest
from gateway.batches.batch import ENDED, WINDOW, Batch
from gateway.errors import ConcurrencyLimited, InvalidValue, NotFound
from gateway.files.repeats import LUA, NO_REPEAT, Repeat, refuse_other
from gateway.ledger.gather_all import gather_bounded
from gateway.store.command import Script
from gateway.store.links import Links, slot
from gateway.store.positions import page_of_members, position_behind

ID = re.compile(r"batch_[0-9a-f]{32}", re.ASCII)
PAGE = 100  # records read at once
PLACES = "batches:places"
FOREIGN = 2 * WINDOW  # seconds after which a batch of another place has lost its runner
MOST_MISSING = 10  # pages of entries without records that a list of all accounts passes over
MOST_KEPT = 2_000  # batches of an account; older ones that have ended make room

_ADD = Script(
    LUA
    + """
local A, id, record, order, most_open, most_kept = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local name, digest = ARGV[6], ARGV[7]
if redis.call('EXISTS', A) == 0 then return {2} end
if redis.call('HGET', A .. ':bt', id) then return {0} end
local made, is_same = made_before(A, name, digest, ':bt')
if made then return {is_same and 4 or 5, made} end
if redis.call('SCARD', A .. ':bo') >= tonumber(most_open) then return {1} end
local answer = {0}
local over = redis.call('ZCARD', A .. ':bz') + 1 - tonumber(most_kept)
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', A .. ':bz', 0, over + 99)) do
    if over > 0 and redis.call('SISMEMBER', A .. ':bo', old) == 0 then
      redis.call('ZREM', A .. ':bz', old)
      redis.call('HDEL', A .. ':bt', old)
      redis.call('HDEL', A .. ':bc', old)
      answer[#answer + 1] = old
      over = over - 1
    end
  end
end
redis.call('HSET', A .. ':bt', id, record)
redis.call('ZADD', A .. ':bz', order, id)
redis.call('SADD', A .. ':bo', id)
note_made(A, name, digest, id)
return answer
"""
)
_MADE = Script(
    LUA
    + """
local made, is_same = made_before(KEYS[1], ARGV[1], ARGV[2], ':bt')
return made and {is_same and 4 or 5, made} or {0}
"""
)
_SAVE = Script("""
local A, id, record, ended = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if not redis.call('HGET', A .. ':bt', id) then return 0 end
redis.call('HSET', A .. ':bt', id, record)
if ended == '1' then redis.call('SREM', A .. ':bo', id) end
return 1
""")
_CANCEL = Script("""
local A, id, now = KEYS[1], ARGV[1], ARGV[2]
if redis.call('SISMEMBER', A .. ':bo', id) == 1 then redis.call('HSETNX', A .. ':bc', id, now) end
return 1
""")
_REMOVE = Script("""
local A, id = KEYS[1], ARGV[1]
redis.call('SREM', A .. ':bo', id)
redis.call('ZREM', A .. ':bz', id)
redis.call('HDEL', A .. ':bc', id)
return redis.call('HDEL', A .. ':bt', id)
""")
#: Codes of _ADD, before the ids that made room, or that of the batch; any other: there is no such account.
ADDED, MANY, REPEATED, OTHER = 0, 1, 4, 5

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Batch)


class BatchRecords:
    """The records of all accounts."""

    def __init__(self, links: Links) -> None:
        self.of_all = AllBatches(links)
        self._links = links

    async def add(self, batch: Batch, *, most_open: int, repeat: Repeat = NO_REPEAT) -> str:
        """Store a new batch, and tell its runner; its id, or that of the batch which the same request made before.

        ConcurrencyLimited if the account has too many that run.
        """
        name, opened, at = slot(batch.account), _open(batch.place), time.time_ns() // 1_000_000
        await self._links.link(PLACES).call_repeatable("SADD", PLACES, batch.place)
        await self._links.link(opened).call_repeatable("ZADD", opened, batch.created_at, _entry(batch))
        await self.of_all.add(batch.id, batch.account, at)
        args = (batch.id, _encode(batch), at, most_open, MOST_KEPT, repeat.name, repeat.digest)
        code, *ids = await self._links.link(name).eval(_ADD, [name], args, repeatable=True)
        if code == ADDED:
            await self.of_all.remove(ids)
            return batch.id
        await self._links.link(opened).call_repeatable("ZREM", opened, _entry(batch))
        await self.of_all.remove([batch.id])
        if code == REPEATED:
            return str(ids[0].decode())
        if code == OTHER:
            raise refuse_other()
        if code == MANY:
            raise ConcurrencyLimited(f"The account has {most_open} batches that have not ended", retry_after=60.0)
        raise NotFound("There is no such account")

    async def made_before(self, account: str, repeat: Repeat) -> str:
        """The id of the batch that the same request made; empty if there is none. InvalidValue for another request."""
        name = slot(account)
        args = (repeat.name, repeat.digest)
        code, *ids = await self._links.link(name).eval(_MADE, [name], args, repeatable=True)
        if code == OTHER:
            raise refuse_other()
        return str(ids[0].decode()) if ids else ""

    async def find(self, account: str, batch_id: str, *, user: str = "") -> tuple[Batch, int | None]:
        """The batch, if a key of `user` sees it, and when it was cancelled; NotFound."""
        found: tuple[bytes | None, bytes | None] = (None, None)
        if ID.fullmatch(batch_id):
            name = slot(account)
            link = self._links.link(name)
            record, mark = (link.call_repeatable("HGET", f"{name}:{kind}", batch_id) for kind in ("bt", "bc"))
            found = await asyncio.gather(record, mark)
        batch = _decoder.decode(found[0]) if found[0] is not None else None
        if batch is None or not batch.is_seen_by(user):
            raise NotFound(f"No batch found with id '{batch_id[:64]}'", param="batch_id")
        return batch, _seconds(found[1])

    async def cancel(self, account: str, batch_id: str) -> None:
        """Cancel a batch; nothing happens to one that has ended."""
        name = slot(account)
        await self._links.link(name).eval(_CANCEL, [name], [batch_id, int(time.time())], repeatable=True)

    async def page(
        self, account: str, *, user: str, after: str, limit: int
    ) -> tuple[list[tuple[Batch, int | None]], bool]:
        """Up to `limit` batches, the newest first, behind `after`, and whether there are more; InvalidValue."""
        name = slot(account)
        link = self._links.link(name)
        start, found = 0, list[tuple[Batch, int | None]]()
        if after:
            begin = await position_behind(link, f"{name}:bz", after, reverse=True)
            if begin is None:
                raise InvalidValue("Invalid 'after': there is no such batch", param="after")
            start = begin
        while ids := await page_of_members(link, f"{name}:bz", start, PAGE, reverse=True):
            start += len(ids)
            for batch, mark in await self._read(account, [id_.decode() for id_ in ids]):
                if batch is None or not batch.is_seen_by(user):
                    continue
                if len(found) == limit:
                    return found, True
                found.append((batch, mark))
        return found, False

    async def newest(
        self, account: str, *, user: str, before: Position | None, limit: int
    ) -> list[tuple[Position, Batch, int | None]]:
        """Up to `limit` batches of an account, the newest first, behind the position `before`; see `find`."""
        name, found = slot(account), list[tuple[Position, Batch, int | None]]()
        while len(found) < limit:  # at most MOST_KEPT
            places = await newest(self._links.link(name), f"{name}:bz", before, PAGE)
            for at, (batch, mark) in zip(places, await self._read(account, [one[1] for one in places]), strict=True):
                if batch is not None and batch.is_seen_by(user):
                    found.append((at, batch, mark))
            if len(places) < PAGE:
                break
            before = places[-1]
        return found[:limit]

    async def newest_of_all(self, *, before: Position | None, limit: int) -> list[tuple[Position, Batch, int | None]]:
        """Up to `limit` batches of all accounts, the newest first, behind the position `before`."""
        found = list[tuple[Position, Batch, int | None]]()
        for _ in range(limit // PAGE + MOST_MISSING):
            places = await self.of_all.newest(before, PAGE)
            by_account: dict[str, list[Position]] = {}
            for place, account in places:
                by_account.setdefault(account, []).append(place)
            read = await gather_bounded(
                self._read(account, [id_ for _, id_ in some]) for account, some in by_account.items()
            )
            some_found = [
                (place, batch, mark)
                for some, pairs in zip(by_account.values(), read, strict=True)
                for place, (batch, mark) in zip(some, pairs, strict=True)
                if batch is not None
            ]
            found += sorted(some_found, key=lambda one: one[0], reverse=True)
            if len(places) < PAGE or len(found) >= limit:
                break
            before = places[-1][0]
        return found[:limit]

    async def _read(self, account: str, ids: Sequence[str]) -> list[tuple[Batch | None, int | None]]:
        """The batches with these ids, and when they were cancelled."""
        if not ids:
            return []
        name = slot(account)
        link = self._links.link(name)
        records, cancels = (link.call_repeatable("HMGET", f"{name}:{kind}", *ids) for kind in ("bt", "bc"))
        texts, marks = await asyncio.gather(records, cancels)
        return [
            (_decoder.decode(text) if text is not None else None, _seconds(mark))
            for text, mark in zip(texts, marks, strict=True)
        ]

    # The runner's side -----------------------------------------------------------------------------------------------

    async def open_batches(self, place: str, *, most: int) -> list[tuple[str, str, int]]:
        """Account, id and creation of the oldest batches of a place that have not ended."""
        opened = _open(place)
        entries = await self._links.link(opened).call_repeatable("ZRANGE", opened, 0, most - 1, "WITHSCORES")
        return [(*_owner(entry), int(score)) for entry, score in members_with_scores(entries)]

    async def save(self, batch: Batch, *, keep: int = 0) -> bool:
        """Store what has changed; False if the record is gone. One that has ended is deleted `keep` seconds later."""
        name, ended = slot(batch.account), batch.status in ENDED
        if ended:
            due = _due(batch.place)
            await self._links.link(due).call_repeatable("ZADD", due, int(time.time()) + keep, _entry(batch))
        args = (batch.id, _encode(batch), int(ended))
        return bool(await self._links.link(name).eval(_SAVE, [name], args, repeatable=True))

    async def close(self, place: str, account: str, batch_id: str) -> None:
        """The batch has ended, and nothing of it is left to be done."""
        opened = _open(place)
        await self._links.link(opened).call_repeatable("ZREM", opened, f"{account} {batch_id}")

    async def expire_foreign(self, place: str, *, most: int, keep: int) -> int:
        """End batches of other places whose machine is gone; their number."""
        done, now = 0, int(time.time())
        for other in await self._links.link(PLACES).call_repeatable("SMEMBERS", PLACES):
            opened = _open(other.decode())
            if other.decode() == place or done >= most:
                continue
            args = ("-inf", now - FOREIGN, "LIMIT", 0, most - done)
            for entry in await self._links.link(opened).call_repeatable("ZRANGEBYSCORE", opened, *args):
                account, batch_id = _owner(entry)
                try:
                    batch, _ = await self.find(account, batch_id)
                    if batch.status not in ENDED:
                        batch.status, batch.expired_at = "expired", now
                        await self.save(batch, keep=keep)
                except NotFound:
                    pass  # there is nothing left of it
                await self.close(other.decode(), account, batch_id)
                done += 1
        return done

    async def expired(self, place: str, *, most: int) -> int:
        """Delete records whose time is over; their number."""
        due = _due(place)
        args = ("-inf", int(time.time()), "LIMIT", 0, most)
        entries = await self._links.link(due).call_repeatable("ZRANGEBYSCORE", due, *args)
        for entry in entries:
            account, batch_id = _owner(entry)
            name = slot(account)
            await self._links.link(name).eval(_REMOVE, [name], [batch_id], repeatable=True)
            await self.of_all.remove([batch_id])
            await self._links.link(due).call_repeatable("ZREM", due, entry)
        return len(entries)


def _open(place: str) -> str:
    return f"batches:open:{place}"


def _due(place: str) -> str:
    return f"batches:due:{place}"


def _entry(batch: Batch) -> str:
    return f"{batch.account} {batch.id}"


def _owner(entry: bytes) -> tuple[str, str]:
    account, _, batch_id = entry.decode().rpartition(" ")
    return account, batch_id


def _seconds(mark: bytes | None) -> int | None:
    return int(mark) if mark is not None else None

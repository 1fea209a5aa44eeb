"""Batches the admissions, or the settlements, of one event-loop tick: one script call per account and `ENOUGH` items.

Measured on one of two shared cores (benchmarks/micro_ledger.py), µs per call without limits: 64 admissions of one
account cost Redis 7 each and the worker 11, asyncio's task included; 64 of 64 accounts 31 and 16; settlements 11 and 8
against 24 and 12. RPM, TPM and concurrency together add 2 in a batch, 16 alone. Calls of different accounts are sent in
the same write of the link. Sharp edge: the script of `repeatable` batches must change nothing when it is executed a
second time, because the link sends them again if the reply is late or lost. Other batches are sent once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, TypeVar

from gateway.errors import GatewayError, InternalError, StoreFate, StoreUnavailable
from gateway.store.command import Script, pack
from gateway.store.connection import RedisReplyError
from gateway.store.link import RedisLink
from gateway.store.links import Links, slot

log = logging.getLogger("gateway.ledger")

#: The line break and the length line that precede an argument in the Redis protocol, by the length in bytes.
LENGTH = tuple(f"\r\n${length}\r\n" for length in range(1025))

Item = TypeVar("Item")
Argument = str | bytes | int

#: So many items are sent without waiting for the end of the tick, so that the store works on them while the worker
#: continues. With 64 concurrent connections: 6,400 answers a second with whole ticks, 8,500 with this limit.
ENOUGH = 16


@dataclass(eq=False, repr=False, slots=True)
class Batch(Generic[Item]):
    """Items of one account that are sent together, and how often they were sent; it receives the reply of the store.

    It is used in place of a future, which would cost 1.5 µs and one more step of the event loop.
    """

    account: str
    items: Sequence[Item]
    sender: Batches[Item]
    tries: int = 0

    @property
    def repeatable(self) -> bool:
        """Whether the link may send it again; read only when its reply is late or lost."""
        return self.sender.repeatable

    def done(self) -> bool:
        """Whether the reply is no longer needed."""
        return False

    def set_result(self, result: Any) -> None:
        """Pass the reply on; called while the connection reads."""
        self.sender.replied(self, result)

    def set_exception(self, exception: Exception) -> None:
        """Pass the error on in a later step of the event loop, when the link knows of a loss as well."""
        asyncio.get_running_loop().call_soon(self.sender.failed, self, exception)


class Tick:
    """Sends all batches of an event loop tick at its end, with one write to each server.

    One callback sends the batches and writes them. A callback for each batch and for each write costs a request that is
    alone in its tick two more steps of the event loop.
    """

    def __init__(self) -> None:
        self._waiting: list[Batches[Any]] = []

    def add(self, batches: Batches[Any]) -> None:
        """Send the items of `batches` at the end of this tick."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._end)
        self._waiting.append(batches)

    def _end(self) -> None:
        links: set[RedisLink] = set()
        try:
            while self._waiting:
                self._waiting.pop(0).send_all(links)
        finally:
            if self._waiting:  # an error of one batch must not delay the others
                asyncio.get_running_loop().call_soon(self._end)
            _flush(links)


@dataclass(eq=False, repr=False, slots=True)
class Batches(Generic[Item]):
    """Collects items until the tick ends or there are `ENOUGH`, then sends the items of each account to the script.

    `command` packs the EVALSHA of a batch, given its key. Where it returns b"", or raises IndexError for an argument
    longer than `LENGTH`, the slower `arguments` make the ARGV. `on_answer` gets the reply, or `on_failure` the error;
    one of them is always called. If `on_answer` raises, `on_failure` is called too and must skip the items that have a
    result.
    """

    links: Links
    script: Script
    _: KW_ONLY
    tick: Tick
    arguments: Callable[[Batch[Item]], list[Argument]]
    command: Callable[[Batch[Item], str], bytes]
    on_answer: Callable[[Batch[Item], list[Any]], None]
    on_failure: Callable[[Batch[Item], GatewayError], None]
    before: Callable[[dict[str, list[Item]]], None] | None = None
    repeatable: bool = False
    _waiting: dict[str, list[Item]] = field(default_factory=dict)
    _count: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def put(self, account: str, item: Item) -> None:
        """Send `item` at the end of this tick at the latest."""
        waiting = self._waiting
        if not waiting:
            self.tick.add(self)
        items = waiting.get(account)
        if items is None:
            waiting[account] = [item]
        else:
            items.append(item)
        self._count += 1
        if self._count == ENOUGH:
            links: set[RedisLink] = set()
            self.send_all(links)
            _flush(links)

    def send_all(self, links: set[RedisLink]) -> None:
        """Send what waits, and add the links that must be flushed to `links`."""
        waiting, self._waiting, self._count = self._waiting, {}, 0
        if not waiting:  # `put` has sent them before the end of the tick
            return
        if self.before is not None:
            self.before(waiting)
        for account, items in waiting.items():
            self._send(Batch(account, items, self), links)

    def send(self, batch: Batch[Item]) -> None:
        """Send a batch now."""
        links: set[RedisLink] = set()
        self._send(batch, links)
        _flush(links)

    def _send(self, batch: Batch[Item], links: set[RedisLink]) -> None:
        batch.tries += 1
        key = slot(batch.account)
        try:
            command = self._packed(batch, key)
        except (TypeError, ValueError) as error:  # an argument cannot be encoded: the callers still need a result
            self.on_failure(batch, GatewayError(detail=repr(error)))
            return
        link = self.links.link(key)
        link.put(command, batch)
        links.add(link)

    def _packed(self, batch: Batch[Item], key: str) -> bytes:
        try:
            if command := self.command(batch, key):
                return command
        except IndexError:
            pass
        return pack(("EVALSHA", self.script.sha1, 1, key, *self.arguments(batch)))

    def replied(self, batch: Batch[Item], reply: list[Any]) -> None:
        """The script ran."""
        try:
            self.on_answer(batch, reply)
        except Exception:
            # The connection's edge: a bug here must not end the replies to other calls, nor let a caller wait forever.
            log.exception("the reply to a script of account %s could not be used", batch.account)
            error = StoreUnavailable(detail="its reply could not be used", fate=StoreFate.UNKNOWN)
            asyncio.get_running_loop().call_soon(self.on_failure, batch, error)

    def failed(self, batch: Batch[Item], error: Exception) -> None:
        """The script did not run, or its result is unknown."""
        if isinstance(error, RedisReplyError) and error.kind == "NOSCRIPT":
            task = asyncio.get_running_loop().create_task(self._load(batch))  # the script did not run
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self.on_failure(batch, error if isinstance(error, GatewayError) else GatewayError(detail=repr(error)))

    async def _load(self, batch: Batch[Item]) -> None:
        """Send the script's source, because the server does not have the script yet."""
        key = slot(batch.account)
        try:
            link = self.links.link(key)
            reply = await link.eval(self.script, [key], self.arguments(batch), repeatable=self.repeatable)
        except GatewayError as error:
            self.on_failure(batch, error)
        else:
            self.replied(batch, reply)


def _flush(links: set[RedisLink]) -> None:
    for link in links:
        link.flush()


def bulk(argument: str | int) -> str:
    """An ASCII argument in the Redis protocol; the line break precedes it."""
    text = str(argument)
    return f"\r\n${len(text)}\r\n{text}"


def command_start(script: Script) -> str:
    """The text of a script's EVALSHA with one key, between the number of arguments and the key."""
    return "".join(bulk(word) for word in ("EVALSHA", script.sha1, "1"))


def own_error(error: GatewayError) -> GatewayError:
    """A new error for one of many waiters; a shared exception would collect the tracebacks of all of them."""
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable(detail=error.detail, fate=error.fate)
    return InternalError(detail=error.detail)

"""Questions about running calls between the gateways of one store, through small sets in the store.

::

    supervisor ──SADD machines:asked:ID──► supervisor of another machine, which asks its workers
               ──SADD machines:cancels:ID─►
               ◄──SADD machines:answers:TICKET──

Each gateway looks into its own sets every `LOOK_EVERY` seconds. Nothing is written unless somebody asks, and the sets
expire. Cancellations have a set of their own, in which no list is before them. A machine whose set is full counts as
silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from gateway.admin.machines import read_machines
from gateway.errors import GatewayError
from gateway.ledger.gather_all import gather_bounded
from gateway.runtime.local_socket import CANCEL
from gateway.store import Store
from gateway.store.command import Script

LOOK_EVERY = 0.5  # seconds
COLLECT_EVERY = 0.05  # seconds
AT_ONCE = 10  # questions that are answered together
MOST_MACHINES = 50  # that are asked
LISTS_AT_ONCE = 10  # that this gateway asks for; others wait for one of them
_ASKED, _CANCELS, _ANSWERS = "machines:asked:", "machines:cancels:", "machines:answers:"
_PUT = Script(
    "if redis.call('SCARD', KEYS[1]) >= 50 then return 0 end "
    "redis.call('SADD', KEYS[1], ARGV[1]) redis.call('EXPIRE', KEYS[1], 10) return 1"
)


class MachineQuestion(Struct, frozen=True, array_like=True):
    """A question to another machine; its answer goes to the set of the ticket."""

    ticket: str
    name: str
    payload: bytes


class MachineAnswer(Struct, frozen=True, array_like=True):
    """What the workers of one machine have answered, and how many gave no answer."""

    machine: str
    workers: list[bytes]
    silent: int = 0


class SentAnswer(Struct, frozen=True, array_like=True):
    """An answer as a member of the set: equal ones of two machines are two."""

    machine: str  # id
    answer: MachineAnswer


_asked = msgspec.msgpack.Decoder(MachineQuestion)
_sent = msgspec.msgpack.Decoder(SentAnswer)
AskWorkers = Callable[[str, bytes], Awaitable[MachineAnswer]]


class _List:
    """A list that is asked for, and how many wait for it."""

    def __init__(self, asking: asyncio.Task[tuple[list[MachineAnswer], int]]) -> None:
        self.asking = asking
        self.askers = 0


class OtherMachines:
    """The gateways with the same store, beside the one whose entry has the id `own`."""

    def __init__(self, own: str, ask_workers: AskWorkers) -> None:
        self._own = own
        self._ask_workers = ask_workers
        self._store: Store | None = None
        self._lists: dict[bytes, _List] = {}  # that are asked for now
        self._turns = asyncio.Semaphore(LISTS_AT_ONCE)

    async def run(self, store: Store) -> None:
        """Answer their questions until cancelled."""
        self._store = store
        await asyncio.gather(*(self._answer_all(store, kind + self._own) for kind in (_CANCELS, _ASKED)))

    async def ask(self, name: str, payload: bytes, *, within: float) -> tuple[list[MachineAnswer], int]:
        """Their answers, and how many gave none; none of either without the store.

        Equal lists that are asked for at the same time are one question, which ends with the last of its askers. A
        cancellation waits for no list.
        """
        if self._store is None:
            return [], 0
        if name == CANCEL:
            return await self._ask(self._store, _CANCELS, name, payload, within)
        found = self._lists.get(payload)
        if found is None:
            asking = asyncio.create_task(self._ask_list(self._store, name, payload, within))
            found = self._lists[payload] = _List(asking)
            asking.add_done_callback(lambda _: self._forget(payload, found))
        found.askers += 1
        try:
            return await asyncio.shield(found.asking)  # others may wait for it when this caller is cancelled
        finally:
            found.askers -= 1
            if not found.askers:
                self._forget(payload, found)
                found.asking.cancel()

    def _forget(self, payload: bytes, found: _List) -> None:
        if self._lists.get(payload) is found:
            del self._lists[payload]

    async def _ask_list(
        self, store: Store, name: str, payload: bytes, within: float
    ) -> tuple[list[MachineAnswer], int]:
        now = asyncio.get_running_loop().time
        until = now() + within
        try:
            await asyncio.wait_for(self._turns.acquire(), within)
        except TimeoutError:
            return await self._ask(store, _ASKED, name, payload, 0.0)
        try:
            return await self._ask(store, _ASKED, name, payload, until - now())
        finally:
            self._turns.release()

    async def _ask(
        self, store: Store, kind: str, name: str, payload: bytes, within: float
    ) -> tuple[list[MachineAnswer], int]:
        try:
            found = await read_machines(store)
            others = [machine.id for machine in found if machine.id != self._own][:MOST_MACHINES]
            ticket = secrets.token_hex(8)
            question = msgspec.msgpack.encode(MachineQuestion(ticket, name, payload))
            asked = others if within > 0 else []  # else nobody waits for the answers any more
            taken = await gather_bounded(_put(store, kind + machine, question) for machine in asked)
            answers = await _collected(store, _ANSWERS + ticket, sum(taken), within)
        except GatewayError:
            return [], 0
        return answers, len(others) - len(answers)

    async def _answer_all(self, store: Store, key: str) -> None:
        answering = set[asyncio.Task[None]]()
        try:
            while True:
                with contextlib.suppress(GatewayError):
                    for text in await self._taken(store, key, AT_ONCE - len(answering)):
                        answering.add(task := asyncio.create_task(self._answer(store, text)))
                        task.add_done_callback(answering.discard)
                await asyncio.sleep(LOOK_EVERY)  # also while a worker does not answer: the next question has its time
        finally:
            for task in answering:
                task.cancel()

    async def _taken(self, store: Store, key: str, most: int) -> list[bytes]:
        """The next questions to this machine; mostly none."""
        taken = list[bytes]()
        while len(taken) < most and (text := await store.link(key).call("SPOP", key)) is not None:
            taken.append(text)
        return taken

    async def _answer(self, store: Store, text: bytes) -> None:
        try:
            asked = _asked.decode(text)
        except msgspec.MsgspecError:
            return  # of a release that asks in another form
        answer = await self._ask_workers(asked.name, asked.payload)
        with contextlib.suppress(GatewayError):  # who asked counts this machine as silent
            await _put(store, _ANSWERS + asked.ticket, msgspec.msgpack.encode(SentAnswer(self._own, answer)))


async def _put(store: Store, key: str, text: bytes) -> bool:
    """Add the text to a set; False if the set is full."""
    return bool(await store.link(key).eval(_PUT, [key], [text]))


async def _collected(store: Store, key: str, count: int, within: float) -> list[MachineAnswer]:
    """The first `count` answers in the set, or those that there are after `within` seconds."""
    found: list[MachineAnswer] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            while len(found) < count:
                if (text := await store.link(key).call("SPOP", key)) is None:
                    await asyncio.sleep(COLLECT_EVERY)
                    continue
                with contextlib.suppress(msgspec.MsgspecError):  # of a release that answers in another form
                    found.append(_sent.decode(text).answer)
    return found

"""A server that asks a real one and the model, and notes where their replies differ; the caller gets the real one's.

Scripts read their time from a key, which is set before each command, so both see the same one. Commands about the
server itself go to the real one alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiredis

from tests.simulation.model_server import ModelServer

CLOCK = b"sim:clock"
NOW = b"redis.call('HMGET', 'sim:clock', 's', 'us')"
#: Replies that depend on the real server's own time, process or order.
NOT_COMPARED = frozenset({b"HELLO", b"INFO", b"TIME", b"PING", b"CLIENT", b"CONFIG", b"WAIT", b"WAITAOF", b"COMMAND"})
UNORDERED = frozenset({b"SMEMBERS", b"SSCAN", b"HSCAN", b"HKEYS"})
PASSED_ON = NOT_COMPARED | {b"SUBSCRIBE", b"UNSUBSCRIBE", b"PUBLISH", b"MULTI", b"EXEC", b"SCAN", b"KEYS", b"AUTH"}
_NOTHING = object()


def with_our_clock(source: bytes) -> bytes:
    """A script that reads the time, and the time in the id of a new line, from `CLOCK`."""
    source = source.replace(b"redis.call('TIME')", NOW)
    return source.replace(b"':lg', '*',", b"':lg', redis.call('HGET', 'sim:clock', 'ms') .. '-*',")


class ComparingServer:
    """Listens on a unix socket in front of a real server."""

    def __init__(self, real: Path, path: Path) -> None:
        self.path = path
        self.compared: Counter[bytes] = Counter()
        self.passed_on: Counter[bytes] = Counter()
        self.differences: list[str] = []
        self._real = real
        self._now = 0
        self._model = ModelServer(lambda: self._now)
        self._scripts: dict[bytes, bytes] = {}  # the hash of a script as the caller knows it, and of ours
        self._turn = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Listen; the real server forgets the scripts of tests before, which the model does not have."""
        replies, commands = await asyncio.open_unix_connection(self._real)
        await _Real(replies, commands).ask([b"SCRIPT", b"FLUSH"])
        commands.close()
        await commands.wait_closed()
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def close(self) -> None:
        """End every connection."""
        assert self._server is not None
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        await self._server.wait_closed()

    async def _serve(self, caller: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        replies, commands = await asyncio.open_unix_connection(self._real)
        requests, real = hiredis.Reader(notEnoughData=_NOTHING), _Real(replies, commands)
        try:
            while data := await caller.read(1 << 20):
                requests.feed(data)
                while (request := requests.gets()) is not _NOTHING:
                    async with self._turn:
                        answers.write(await self._ask(real, request))
                await answers.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the caller has left, or the comparison ends
        except Exception as error:
            # A command that the model cannot run: the comparison says so at its end.
            self.differences.append(f"the model failed: {error!r}")
        finally:
            for writer in (commands, answers):
                writer.close()
                with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                    await writer.wait_closed()
            self._serving.discard(task)

    async def _ask(self, real: _Real, request: list[bytes]) -> bytes:
        name = request[0].upper()
        if name in PASSED_ON or not self._model.knows(name):
            self.passed_on[name] += 1
            return (await real.ask(request))[0]
        self._now = max(self._now, time.time_ns() // 1000)
        seconds, rest = divmod(self._now, 1_000_000)
        clock = [b"HSET", CLOCK, b"s", b"%d" % seconds, b"us", b"%d" % rest, b"ms", b"%d" % (self._now // 1000)]
        await real.ask(clock)
        self._model.execute(clock)
        raw, found = await real.ask(ours := self._with_our_scripts(request))
        self._compare(name, request, found, self._model.answer(ours))
        if name == b"SCRIPT" and request[1].upper() == b"LOAD":
            theirs = hashlib.sha1(request[2], usedforsecurity=False).hexdigest().encode()
            return b"$%d\r\n%b\r\n" % (len(theirs), theirs)
        return raw

    def _with_our_scripts(self, request: list[bytes]) -> list[bytes]:
        name = request[0].upper()
        at = 2
        if name == b"XADD" and request[2] == b"MAXLEN":
            at = 5 if request[3] == b"~" else 4
        if name == b"XADD" and request[at] == b"*":
            return [*request[:at], b"%d-*" % (self._now // 1000), *request[at + 1 :]]
        if name == b"EVALSHA":
            return [request[0], self._scripts.get(request[1], request[1]), *request[2:]]
        place = 1 if name == b"EVAL" else 2 if name == b"SCRIPT" and request[1].upper() == b"LOAD" else 0
        if not place:
            return request
        ours = with_our_clock(request[place])
        hashes = [hashlib.sha1(one, usedforsecurity=False).hexdigest().encode() for one in (request[place], ours)]
        self._scripts[hashes[0]] = hashes[1]
        return [*request[:place], ours, *request[place + 1 :]]

    def _compare(self, name: bytes, request: list[bytes], real: Any, model: bytes) -> None:
        reader = hiredis.Reader(notEnoughData=_NOTHING)
        reader.feed(model)
        found = reader.gets()
        self.compared[name] += 1
        if name in UNORDERED or name.startswith(b"EVAL"):
            real, found = _sorted(real), _sorted(found)
        if not _same(real, found):
            self.differences.append(f"{[one[:200] for one in request[:40]]}: {real!r}, and the model: {found!r}")


class _Real:
    """A connection to the real server."""

    def __init__(self, replies: asyncio.StreamReader, commands: asyncio.StreamWriter) -> None:
        self._replies, self._commands = replies, commands

    async def ask(self, request: list[bytes]) -> tuple[bytes, Any]:
        """The reply, as bytes and as an object."""
        self._commands.write(hiredis.pack_command(tuple(request)))  # type: ignore[arg-type]
        reader, raw = hiredis.Reader(notEnoughData=_NOTHING), b""
        while (found := reader.gets()) is _NOTHING:
            if not (data := await self._replies.read(1 << 20)):
                raise ConnectionError("the real server has left")
            reader.feed(data)
            raw += data
        return raw, found


def _sorted(reply: Any) -> Any:
    """Lists of texts in one order, for what a hash table has in another one."""
    if not isinstance(reply, list):
        return reply
    inner = [_sorted(one) for one in reply]
    return sorted(inner) if all(isinstance(one, bytes) for one in inner) else inner


def _same(real: Any, model: Any) -> bool:
    if isinstance(real, Exception) and isinstance(model, Exception):
        return str(real).split(" ")[0] == str(model).split(" ")[0]
    if isinstance(real, list) and isinstance(model, list):
        return len(real) == len(model) and all(map(_same, real, model))
    if isinstance(real, int) and isinstance(model, int) and real > 10**12:
        return abs(real - model) < 5000  # the end of a key, by two clocks
    return bool(real == model)


@contextlib.contextmanager
def compared(real: Path) -> Iterator[ComparingServer]:
    """A comparing server in a thread, in front of the real one; AssertionError at the end for differences."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(prefix="compared-") as folder:
        server = ComparingServer(real, Path(folder) / "store.sock")
        loop.run_until_complete(server.start())
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()
    shown = "\n".join(server.differences[:20])
    assert not server.differences, f"{len(server.differences)} of {server.compared.total()} replies differ:\n{shown}"

"""A scriptable provider's server on loopback: right answers, wrong ones, silence and cuts, with a log of what it did.

::

    async with FakeUpstream() as upstream:
        upstream.enqueue(Reply.error(429, "slow down", headers={"retry-after": "7"}))
        …                                  # point a provider at upstream.base_url
        assert upstream.seen[0].json["model"] == "m"

Unscripted requests get what `answer` makes of them, by default OpenAI's dialect; pass another function for another
one. `seen` is the truth that bills and disconnect times are compared with. Sharp edge: `frames` counts
frames handed to the kernel, so the peer may have received fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from aiohttp import web

from gateway.testing.openai_dialect import openai_chat as openai_chat
from gateway.testing.openai_dialect import openai_dialect
from gateway.testing.realtime_dialect import openai_realtime
from gateway.testing.reply import Reply as Reply
from gateway.testing.reply import Seen as Seen


class FakeUpstream:
    """The server; an async context manager."""

    def __init__(self, answer: Callable[[Seen], Reply] | None = None) -> None:
        self.answer: Callable[[Seen], Reply] = (
            answer or openai_dialect
        )  # makes the answers to requests that are not scripted
        #: Serves a WebSocket, given the path with its query.
        self.socket: Callable[[web.WebSocketResponse, str], Awaitable[None]] = openai_realtime
        self.tamper: Callable[[Reply], Reply] | None = None  # applied to whatever `answer` makes
        self.seen: list[Seen] = []  # every request so far, in order
        self.url = ""  # the server's address, without a path
        self._scripted: deque[Reply] = deque()
        self._open: list[tuple[Seen, asyncio.Transport | None]] = []  # requests whose answer has not ended
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """The address under which OpenAI-compatible clients expect the API."""
        return f"{self.url}/v1"

    @property
    def connections(self) -> int:
        """How many connections of clients are open now, whether a request is on them or not."""
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    def enqueue(self, *replies: Reply) -> None:
        """Answer the next requests with these, in order."""
        self._scripted.extend(replies)

    async def start(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen on an address of this machine; port 0 picks a free one."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.url = f"http://{host}:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def drop(self) -> None:
        """Close the connection of every request whose answer has not ended."""
        for seen, transport in self._open:
            _note(seen, "cut")
            if transport is not None:
                transport.close()

    async def wait_started(self, position: int = -1, *, frames: int = 0, within: float = 10.0) -> Seen:
        """The request at `position` of the log, once so many frames of its answer are written."""
        return await self._wait(position, lambda seen: seen.frames >= frames, f"not written {frames} frames", within)

    async def wait_ended(self, position: int = -1, *, within: float = 10.0) -> Seen:
        """The request at `position` of the log, once its answer has ended one way or the other."""
        return await self._wait(position, lambda seen: seen.outcome != "open", "not ended", within)

    async def _wait(self, position: int, ready: Callable[[Seen], bool], missed: str, within: float) -> Seen:
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            with contextlib.suppress(IndexError):
                if ready(self.seen[position]):
                    return self.seen[position]
            await asyncio.sleep(0.002)
        raise AssertionError(f"the upstream's answer had {missed} within {within} s")

    async def __aenter__(self) -> FakeUpstream:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(
            method=request.method,
            path=request.path_qs,
            headers={name.lower(): value for name, value in request.headers.items()},
            port=request.transport.get_extra_info("peername")[1] if request.transport else 0,
            body=await request.read(),
        )
        self.seen.append(seen)
        self._open.append(place := (seen, request.transport))
        try:
            return await self._reply(request, seen)
        except (asyncio.CancelledError, ConnectionError):
            if seen.outcome == "open":
                _note(seen, "left")
            raise
        finally:
            self._open.remove(place)

    async def _reply(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        reply = self._scripted.popleft() if self._scripted else self._unscripted(seen)
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.raw is not None:
            return _hang_up(request, seen, reply.raw)
        if reply.opens_socket and reply.cut_after is None:
            return await self._serve(request, seen)
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        if reply.frames is None:
            response.content_length = len(reply.body)
        await response.prepare(request)
        for frame in reply.frames if reply.frames is not None else [reply.body]:
            if reply.interval:
                await asyncio.sleep(reply.interval)
            if reply.cut_after is not None and seen.sent + len(frame) > reply.cut_after:
                await _write(response, frame[: reply.cut_after - seen.sent], seen)
                return _hang_up(request, seen, b"")
            await _write(response, frame, seen)
            seen.frames += 1
        if reply.end == "cut":
            return _hang_up(request, seen, b"")
        if reply.end == "silence":
            await asyncio.sleep(3600)
        await response.write_eof()
        _note(seen, "answered")
        return response

    async def _serve(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        """Serve a WebSocket until one side leaves."""
        socket = web.WebSocketResponse(max_msg_size=1 << 25)
        await socket.prepare(request)
        with contextlib.suppress(ConnectionError):
            await self.socket(socket, seen.path)
        _note(seen, "answered")
        return socket

    def _unscripted(self, seen: Seen) -> Reply:
        reply = Reply(opens_socket=True) if "sec-websocket-key" in seen.headers else self.answer(seen)
        return self.tamper(reply) if self.tamper else reply


async def _write(response: web.StreamResponse, data: bytes, seen: Seen) -> None:
    if data:  # an empty chunk would end a chunked body
        await response.write(data)
        seen.sent += len(data)


def _note(seen: Seen, outcome: Literal["answered", "cut", "left"]) -> None:
    seen.outcome, seen.ended = outcome, time.monotonic()


def _hang_up(request: web.Request, seen: Seen, raw: bytes) -> web.StreamResponse:
    """Write `raw` and close the connection, whatever HTTP would still owe the client."""
    _note(seen, "cut")
    if request.transport is not None:
        if raw:
            request.transport.write(raw)
        request.transport.close()
    return web.Response()  # goes nowhere: the transport is closed


@contextmanager
def background_upstream(answer: Callable[[Seen], Reply] | None = None) -> Iterator[str]:
    """A `FakeUpstream` on a thread of its own, for plain tests beside a gateway that runs as another process.

    ::

        with background_upstream(vendor) as url:
            ...                                    # point a provider's base_url at url

    It serves until the context ends; its address has no path. Sharp edge: `answer` runs in that thread.
    """
    upstream = FakeUpstream(answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="upstream", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(upstream.start(), loop).result(10)
        yield upstream.url
    finally:
        asyncio.run_coroutine_threadsafe(upstream.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

"""A scriptable provider's server on loopback: right answers, wrong ones, silence and cuts, with a log of what it did.

::

    async with FakeUpstream() as upstream:
        upstream.enqueue(Reply.error(429, "slow down", headers={"retry-after": "7"}))
        …                                  # point a provider at upstream.base_url
        assert upstream.seen[0].json["model"] == "m"

Unscripted requests get what `answer` makes of them, by default OpenAI's chat dialect; pass another function for
another dialect. `seen` is the truth that bills and disconnect times are compared with. Sharp edge: `frames` counts
frames handed to the kernel, so the peer may have received fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

import msgspec
from aiohttp import web
from msgspec import Struct

from gateway.sse import DONE, encode_data


class Reply(Struct, kw_only=True):
    """One scripted answer: a document, or frames, and how it goes wrong."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""  # a whole document; ignored when there are frames
    frames: list[bytes] | None = None  # a chunked body, each frame written by itself
    delay: float = 0.0  # seconds before the headers
    interval: float = 0.0  # seconds before each frame
    end: Literal["whole", "cut", "silence"] = "whole"  # cut: close without the end of the body; silence: never end it
    cut_after: int | None = None  # close the connection after so many bytes of the body
    raw: bytes | None = None  # written to the socket as it is, then closed: answers that are not HTTP

    @classmethod
    def json(cls, document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
        """A JSON document."""
        return cls(
            status=status,
            headers={"Content-Type": "application/json", **(headers or {})},
            body=msgspec.json.encode(document),
        )

    @classmethod
    def error(
        cls, status: int, message: str, *, code: Any = None, type: str = "error", headers: dict[str, str] | None = None
    ) -> Reply:
        """An error document as OpenAI shapes it."""
        return cls.json(
            {"error": {"message": message, "type": type, "param": None, "code": code}}, status=status, headers=headers
        )

    @classmethod
    def stream(cls, documents: list[Any], *, done: bool = True, interval: float = 0.0) -> Reply:
        """One data event per document, bytes taken as they are, and OpenAI's end marker."""
        frames = [item if isinstance(item, bytes) else encode_data(msgspec.json.encode(item)) for item in documents]
        return cls(headers={"Content-Type": "text/event-stream"}, frames=frames + [DONE] * done, interval=interval)

    @classmethod
    def silence(cls) -> Reply:
        """Headers never come."""
        return cls(delay=3600.0)

    @classmethod
    def hang_up(cls) -> Reply:
        """The connection is closed without an answer."""
        return cls(raw=b"")


class Seen(Struct, kw_only=True):
    """One request as the upstream saw it, and what became of its answer."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    frames: int = 0  # written
    sent: int = 0  # bytes of the body written
    outcome: Literal["open", "answered", "cut", "left"] = "open"  # left: the client went away first
    ended: float = 0.0  # time.monotonic() of that outcome

    @property
    def json(self) -> Any:
        """The request's body, decoded."""
        return msgspec.json.decode(self.body)


class FakeUpstream:
    """The server; an async context manager."""

    def __init__(self, answer: Callable[[Seen], Reply] | None = None) -> None:
        self.answer = answer or openai_chat
        self.tamper: Callable[[Reply], Reply] | None = None  # applied to whatever `answer` makes
        self.seen: list[Seen] = []
        self.url = ""
        self._scripted: deque[Reply] = deque()
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """The address under which OpenAI-compatible clients expect the API."""
        return f"{self.url}/v1"

    def enqueue(self, *replies: Reply) -> None:
        """Answer the next requests with these, in order."""
        self._scripted.extend(replies)

    async def start(self, *, port: int = 0) -> None:
        """Listen on 127.0.0.1; port 0 picks a free one."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def wait_started(self, position: int = -1, *, frames: int = 0, within: float = 5.0) -> Seen:
        """The request at `position` of the log, once so many frames of its answer are written."""
        return await self._wait(position, lambda seen: seen.frames >= frames, f"not written {frames} frames", within)

    async def wait_ended(self, position: int = -1, *, within: float = 5.0) -> Seen:
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(
            method=request.method,
            path=request.path_qs,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.read(),
        )
        self.seen.append(seen)
        try:
            response = await self._reply(request, seen)
        except (asyncio.CancelledError, ConnectionError):
            _note(seen, "left")
            raise
        return response

    async def _reply(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        reply = self._scripted.popleft() if self._scripted else self._unscripted(seen)
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.raw is not None:
            return _hang_up(request, seen, reply.raw)
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

    def _unscripted(self, seen: Seen) -> Reply:
        reply = self.answer(seen)
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


def openai_chat(seen: Seen) -> Reply:
    """OpenAI's chat dialect: repeats the last message word by word, whole or as a stream, with usage."""
    if not seen.path.endswith("/chat/completions"):
        return Reply.error(404, f"no such path: {seen.path}")
    asked = seen.json
    text = asked["messages"][-1].get("content") or ""
    words = [f"{word} " for word in (text if isinstance(text, str) else "parts").split()] or ["nothing "]
    usage = {"prompt_tokens": len(words) + 3, "completion_tokens": len(words), "total_tokens": 2 * len(words) + 3}
    head = {"id": "chatcmpl-upstream", "created": 1700000000, "model": asked["model"], "system_fingerprint": "fp_fake"}
    if not asked.get("stream"):
        message = {"role": "assistant", "content": "".join(words), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return Reply.json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": word}, None) for word in words] + [({}, "stop")]
    head["object"] = "chat.completion.chunk"
    chunks: list[Any] = [
        {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], "usage": None}
        for delta, finish in deltas
    ]
    if (asked.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": usage})
    return Reply.stream(chunks)

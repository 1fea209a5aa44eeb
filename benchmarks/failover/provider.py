"""One provider that fails on purpose: the name of the model says how. It notes every attempt with its time.

It writes HTTP by itself, because a framework cannot reset a connection, fall silent within a stream or leave out the
last chunk. `healthy` answers always, and continues an answer that a request has begun; `strict` refuses such a request.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

WHOLE = (
    "A gateway is easy to like while every provider behind it answers at once. Its worth shows on the day when a "
    "server suddenly resets the line, a stream stops within one word, and a rate limit says to wait two seconds. Then "
    "callers should get one whole answer or one plain error, and never half of either in disguise."
)
WORDS = [word if at == 0 else f" {word}" for at, word in enumerate(WHOLE.split(" "))]
REFUSAL = "This model does not continue an answer: the last message must be from the user."


class Timing(Struct, frozen=True):
    """Seconds and words of the situations."""

    word: float = 0.015
    retry_after: int = 2
    silent: float = 120.0
    first_word: float = 20.0
    stall: float = 30.0
    outage: float = 60.0
    cut_after: int = 40
    stall_after: int = 20
    broken: int = 10  # the frame that is no JSON


class Attempt(Struct, frozen=True):
    """One request at the provider."""

    model: str
    at: float  # monotonic seconds
    refused_start: bool = False


class Asked(Struct):
    """The part of a request that the provider reads."""

    model: str
    messages: list[dict[str, msgspec.Raw]]
    stream: bool = False

    @property
    def begun(self) -> str:
        """The answer that the request has begun; empty without one."""
        last = self.messages[-1]
        if msgspec.json.decode(last["role"]) != "assistant":
            return ""
        return str(msgspec.json.decode(last["content"]))


_asked = msgspec.json.Decoder(Asked)


class Provider:
    """The server; `attempts` has every request so far."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.attempts: list[Attempt] = []
        self._down_since = 0.0  # monotonic time of the first request to S15

    def of(self, model: str) -> list[Attempt]:
        """The attempts at one model."""
        return [attempt for attempt in self.attempts if attempt.model == model]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                asked = _asked.decode(await _body(head, reader))
                asked.model = asked.model.rpartition("/")[2]
                if not await self._answer(asked, reader, writer):
                    break
        writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays open."""
        model, timing = asked.model, self.timing
        refused = model == "strict" and bool(asked.begun)
        self.attempts.append(Attempt(model, time.monotonic(), refused))
        first = len(self.of(model)) == 1
        if (status := self._status(model, first=first, refused=refused)) is not None:
            writer.write(_error(*status))
            return True
        if model == "S05" and first:
            _reset(writer)
            return False
        if model == "S06":
            with suppress(TimeoutError):
                async with asyncio.timeout(timing.silent):
                    await reader.read(1)
            return False
        words = _words_after(asked.begun)
        if not asked.stream:
            writer.write(_whole("".join(words)))
            return True
        return await self._stream(model, words, writer)

    def _status(self, model: str, *, first: bool, refused: bool) -> tuple[int, str, str, str] | None:
        """The status, message, code and further header of a refusal; None for a model that answers."""
        if refused:
            return 400, REFUSAL, "invalid_prefill", ""
        if model == "S01" and first:
            return 429, "Rate limit reached.", "rate_limit_exceeded", f"Retry-After: {self.timing.retry_after}\r\n"
        if model == "S02":
            return 429, "Rate limit reached.", "rate_limit_exceeded", ""
        if model == "S03" and first:
            return 500, "The server had an error.", "server_error", ""
        if model in ("S04", "S16") or (model == "S15" and self._is_down()):
            return 503, "The engine is overloaded.", "overloaded", ""
        if model == "S12":
            return 400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded", ""
        if model == "S13":
            return 400, "The prompt was refused by the content policy.", "content_policy_violation", ""
        return None

    def _is_down(self) -> bool:
        self._down_since = self._down_since or time.monotonic()
        return time.monotonic() < self.recovers_at

    @property
    def recovers_at(self) -> float:
        """The monotonic time at which the outage of S15 ends."""
        return self._down_since + self.timing.outage

    async def _stream(self, model: str, words: Sequence[str], writer: asyncio.StreamWriter) -> bool:
        timing = self.timing
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if model == "S07":
            await writer.drain()
            await asyncio.sleep(timing.first_word)
        for at, word in enumerate(words):
            if model in ("S08", "S14") and at == timing.cut_after:
                return False
            if model == "S09" and at == timing.stall_after:
                await asyncio.sleep(timing.stall)
                return False
            frame = _frame(model, {"index": 0, "delta": {"content": word}, "finish_reason": None})
            writer.write(_chunk(frame if model != "S10" or at != timing.broken - 1 else b'data: {"choices": [{"de\n\n'))
            await writer.drain()
            await asyncio.sleep(timing.word)
        writer.write(_chunk(_frame(model, {"index": 0, "delta": {}, "finish_reason": "stop"})))
        usage = {"prompt_tokens": 20, "completion_tokens": len(words), "total_tokens": 20 + len(words)}
        writer.write(_chunk(_frame(model, usage=usage)) + (b"" if model == "S11" else _chunk(b"data: [DONE]\n\n")))
        writer.write(b"0\r\n\r\n")
        return True


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    """The body of a request whose head is in lower case: of a known length, or in chunks."""
    if b"\r\ntransfer-encoding: chunked" not in head:
        return await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0))
    found = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        found += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return found


def _words_after(begun: str) -> list[str]:
    """The words that are left of an answer that a request has begun; all words of any other request."""
    if not begun or not WHOLE.startswith(begun.strip()):
        return WORDS
    rest = WHOLE[len(begun.rstrip()) :]
    return [word if at == 0 else f" {word}" for at, word in enumerate(rest.split(" ")) if word or at]


def _frame(model: str, *choices: dict[str, object], usage: dict[str, int] | None = None) -> bytes:
    document = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    document |= {"choices": list(choices), **({"usage": usage} if usage else {})}
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return _answer("200 OK", msgspec.json.encode({"object": "chat.completion", "choices": [choice]}))


def _error(status: int, message: str, code: str, header: str) -> bytes:
    body = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    return _answer(f"{status} Refused", msgspec.json.encode(body), header)


def _answer(status: str, body: bytes, header: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{header}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _reset(writer: asyncio.StreamWriter) -> None:
    """Let the connection end with RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextmanager
def failing_provider(timing: Timing, *, port: int = 0) -> Iterator[tuple[Provider, int]]:
    """The provider in a thread of its own, and its port."""
    provider, ready = Provider(timing), threading.Event()
    ports: list[int] = []
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(provider.serve, "127.0.0.1", port) as server:
            ports.append(server.sockets[0].getsockname()[1])
            ends.append(lambda: loop.call_soon_threadsafe(over.set))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield provider, ports[0]
    finally:
        ends[0]()
        thread.join()

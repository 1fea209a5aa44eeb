"""The one way out: HTTP to providers' servers, as JSON, event streams, bytes or multipart, over aiohttp.

::

    async with await upstream.send("POST", url, headers=headers, body=body, timeouts=target.timeouts) as answer:
        document = await answer.read()                     # or: async for event in answer.events()

Nothing here retries, not even on a kept-alive connection that the server closed meanwhile: whether it had read a POST
by then cannot be known, and only the dispatcher may decide to pay twice. Leaving an answer before its end closes its
socket at once. Sharp edge: error messages never name the upstream's address; `detail` may.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import NoReturn

import aiohttp
from aiohttp.http import HttpProcessingError

from gateway.errors import (
    GatewayError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamTruncated,
    UpstreamUnreachable,
)
from gateway.provider import Timeouts
from gateway.sse import Event, EventParser
from gateway.transport.multipart import Multipart

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024  # of an answer read whole
READ_BUFFER_BYTES = 64 * 1024  # reading pauses at twice this, so a stalled stream holds at most 128 KiB
LINGER = 1.0  # seconds that the transport's trailer may take after the answer's own end marker

Body = bytes | AsyncIterator[bytes] | Multipart | None


class Upstream:
    """A pool of connections to every upstream; one per process."""

    def __init__(self, *, keepalive: float = 15.0, trust_env: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self._keepalive = keepalive  # seconds that an idle connection is kept
        self._trust_env = trust_env  # obey HTTPS_PROXY and friends
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
    ) -> Answer:
        """Send one request and return its answer once the headers are there; raises Upstream errors only."""
        session = self._session or self._open()
        if isinstance(body, Multipart):
            headers = {**(headers or {}), "Content-Type": body.content_type}
            body = body.chunks()
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout_at(started + min(timeouts.first_byte, timeouts.total)):
                # aiohttp arms its connect timer only for a new connection; its other timers stay off: sock_read sets
                # one for every read, where one lazy timer per answer does.
                response = await session.request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    timeout=aiohttp.ClientTimeout(total=None, connect=timeouts.connect),
                    allow_redirects=False,
                )
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:  # TimeoutError is an OSError
            _raise_before_answer(error)
        return Answer(response, loop, timeouts, deadline=started + timeouts.total)

    async def close(self) -> None:
        """Close every connection, those in use included."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        # aiohttp sets TCP_NODELAY itself. limit=0: its default would cap all streams of the process at 100.
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=self._keepalive, ssl=self._tls if self._tls is not None else True
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=self._trust_env,
            read_bufsize=READ_BUFFER_BYTES,
            # A compressed stream arrives late and a compressed document costs more than loopback saves; servers that
            # compress nevertheless are understood.
            headers={"Accept-Encoding": "identity", "User-Agent": "model-gateway"},
        )
        return self._session


class Answer:
    """One upstream answer: status and headers now, the body as it comes. Use as a context manager, or close it."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        loop: asyncio.AbstractEventLoop,
        timeouts: Timeouts,
        *,
        deadline: float,
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers  # case-insensitive
        self._response = response
        self._content = response.content
        self._loop = loop
        self._deadline = deadline
        self._patience = timeouts.first_byte  # until the first byte of the body, then the idle timeout
        self._idle = timeouts.idle
        self._waiting_since = 0.0  # 0 while nobody waits: a slow reader is no silent upstream
        self._timer: asyncio.TimerHandle | None = None
        self._timed_out = ""
        self._parser = EventParser()
        self._ended = False

    async def read_chunk(self) -> bytes:
        """The bytes that have arrived since the last call, waiting for some; b"" at the end of the body."""
        content = self._content
        try:
            if not content.is_eof():
                self._waiting_since = self._loop.time()
                if self._timer is None:
                    self._arm()
            chunk = await content.readany()
        except (aiohttp.ClientError, HttpProcessingError, OSError, RuntimeError) as error:
            # RuntimeError is what aiohttp raises for a read after the connection has gone.
            self._raise_cut(error)
        except asyncio.CancelledError:
            self.close()
            raise
        self._waiting_since = 0.0
        if self._patience != self._idle:
            self._patience = self._idle
            self._stop_timer()  # it was set for the first byte; the next wait sets it anew
        if not chunk:
            self._end()
        return chunk

    async def read(self, *, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        """The whole body; UpstreamInvalidResponse when it is longer than `limit` bytes."""
        chunk = await self.read_chunk()
        if self._content.at_eof() and len(chunk) <= limit:
            self._end()
            return chunk
        chunks, size = [], 0
        while chunk:
            size += len(chunk)
            if size > limit:
                self.close()
                raise UpstreamInvalidResponse(detail=f"the answer is over {limit} bytes")
            chunks.append(chunk)
            chunk = await self.read_chunk()
        return b"".join(chunks)

    async def read_events(self) -> list[Event]:
        """The next events of a stream, all that have arrived and at least one; empty at the end of the body."""
        while chunk := await self.read_chunk():
            if events := self._parser.feed(chunk):
                return events
        return self._parser.flush()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they arrive."""
        while chunk := await self.read_chunk():
            yield chunk

    async def events(self) -> AsyncIterator[Event]:
        """The events of a stream, one by one; `read_events` is the faster form for a loop per frame."""
        while events := await self.read_events():
            for event in events:
                yield event

    def release(self) -> None:
        """The answer's own end marker has come: keep the connection if its body ends within a second."""
        self._stop_timer()
        if not self._response.closed:
            # aiohttp returns the connection to the pool when the body's end arrives; the timer holds the response until
            # then, and closing it afterwards does nothing.
            self._loop.call_later(LINGER, self._response.close)
        self._ended = True

    def close(self) -> None:
        """Close the socket at once unless the body was read to its end, in which case it is in the pool already."""
        self._stop_timer()
        if self._ended:
            return
        self._ended = True
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            # abort, not close: close would first flush a half-sent request, and over TLS wait for the peer's goodbye.
            connection.transport.abort()
        self._response.close()

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self) -> None:
        self._ended = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        """Set the one timer to the earliest moment at which this answer could be late."""
        since = self._waiting_since or self._loop.time()
        self._timer = self._loop.call_at(min(since + self._patience, self._deadline), self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        if now >= self._deadline:
            self._timed_out = "the total deadline passed"
        elif self._waiting_since and now >= self._waiting_since + self._patience:
            self._timed_out = f"silent for {self._patience:g} s"
        if not self._timed_out:
            self._arm()
            return
        # Closing makes the waiting read fail, and that read turns the failure into UpstreamTimeout.
        self.close()

    def _raise_cut(self, error: BaseException) -> NoReturn:
        timed_out = self._timed_out
        self.close()
        if timed_out:
            raise UpstreamTimeout(detail=timed_out) from None
        if isinstance(error, HttpProcessingError):
            raise UpstreamInvalidResponse(detail=_describe(error)) from None
        raise UpstreamTruncated(detail=_describe(error)) from None


def _raise_before_answer(error: BaseException) -> NoReturn:
    """The typed error for a failure before the answer's headers."""
    if isinstance(error.__cause__, GatewayError):
        raise error.__cause__  # the source of a streamed request body failed, not the upstream
    kind: type[GatewayError] = UpstreamUnreachable
    if isinstance(error, TimeoutError):
        kind = UpstreamTimeout
    elif isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
        kind = UpstreamInvalidResponse
    raise kind(detail=_describe(error)) from None


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]

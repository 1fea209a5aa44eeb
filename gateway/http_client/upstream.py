"""The HTTP client for providers' servers: JSON, event streams, bytes and multipart.

::

    async with await upstream.send("POST", url, headers=headers, body=body, timeouts=target.timeouts) as answer:
        document = await answer.read()                     # or: while events := await answer.read_events()

Requests use the connections of `pool`. A provider with a proxy gets `upstream.view(…)`, whose requests use aiohttp.
This module never retries, not even on a kept-alive connection that the server closed meanwhile: it is unknown whether
the server had read a POST, and only the dispatcher may decide to send it twice. If an answer is closed before its end,
its socket is closed at once. Sharp edge: error messages never contain the upstream's address; `detail` may, but never
the address of a proxy.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from msgspec import structs

from gateway.config.proxy import Proxies, Proxy
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.http_client.deadline_timer import Deadlines
from gateway.http_client.forwarded_headers import named_headers, trace_headers
from gateway.http_client.inflate import FREE, Inflater
from gateway.http_client.multipart import Multipart
from gateway.http_client.pool import Pool
from gateway.http_client.request import RequestHeads, UpstreamHead, address_of, new_head
from gateway.http_client.response import Lane, Response
from gateway.http_client.send_state import set_sent
from gateway.http_client.timeouts import Timeouts
from gateway.sse import Event, EventParser

if TYPE_CHECKING:
    from gateway.http_client.proxied import ProxiedClient
    from gateway.http_client.upstream_socket import SocketClient, UpstreamSocket

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024  # of an answer that is read as a whole
MAX_LINE_BYTES = 8 * 1024 * 1024  # as of a line of an event stream
CONNECT_WITHIN = 2.0  # seconds for the hosts that `connects` tries
LONG_WAIT = 1.0  # seconds for a connection; the first packet is sent again after one
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})  # methods that send an empty body if none is given

Body = bytes | AsyncIterator[bytes] | Multipart | None


class Upstream:
    """A pool of connections to every upstream; one per process, and a view of it for a provider that needs one."""

    def __init__(self, *, keepalive: float = 15.0, tls: ssl.SSLContext | None = None) -> None:
        self._keepalive = keepalive  # seconds that an idle connection is kept
        self._tls = tls
        self._heads = RequestHeads()
        self._pool: Pool | None = None
        self._proxied: ProxiedClient | None = None
        self._sockets: SocketClient | None = None
        self._proxies: Proxies | None = None  # of a view
        self._forwards: frozenset[str] = frozenset()  # of a view
        self._whole: Upstream | None = None  # whose connections a view uses

    def view(self, *, proxies: Proxies | None = None, forwards: Iterable[str] = ()) -> Upstream:
        """A view whose requests use these proxies, and have the caller's headers of the names in `forwards`.

        Its connections belong to this object, which closes them.
        """
        if proxies is not None:
            self._proxy_client()
        view = Upstream()
        view._proxies, view._whole = proxies, self._whole or self
        view._forwards = frozenset(name.lower() for name in forwards)
        return view

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
    ) -> Answer:
        """Send one request and return its answer when its headers have arrived.

        Raises Upstream errors, or Overloaded if this machine lacks a descriptor or memory for a connection.
        An error of a streamed body's source is raised unchanged; the upstream then gets an incomplete request.
        """
        pool = self._pool or self._open()
        headers = headers or {}
        if isinstance(body, Multipart):
            headers = {**headers, "Content-Type": body.content_type}
            if body.length is not None:
                headers["Content-Length"] = str(body.length)
            body = body.chunks()
            head = new_head(method, address_of(url), headers)  # not cached, because its boundary is different each time
        else:
            head = self._heads.head(method, url, headers)
        trace = trace_headers()
        if self._forwards:
            trace = {**named_headers(self._forwards, headers), **trace}
        started = pool.loop.time()
        if self._proxies is not None and (proxy := _proxy_for(head, self._proxies)) is not None:
            incoming = Response(pool.loop, pool.deadlines, timeouts, started=started)
            set_sent(False, incoming)
            self._proxy_client().start(
                incoming, method, head, headers={**headers, **trace}, body=body, connect=timeouts.connect, proxy=proxy
            )
        else:
            if trace:  # not in the cached head, because each call has another one
                head = structs.replace(head, start=head.start + _lines(trace))
            origin = pool.origin(head.address)
            connection = origin.take()
            if connection is None:
                set_sent(False)
                connection = await origin.connect(min(timeouts.connect, timeouts.first_byte, timeouts.total))
            incoming = Response(pool.loop, pool.deadlines, timeouts, started=started)
            if body is None or isinstance(body, bytes):
                connection.start(incoming, *_message(method, head, body), method=method)
            else:
                connection.start(incoming, _streamed_head(head), method=method)
                connection.upload(incoming, body, length=head.length)
            set_sent(True, incoming)
        if not incoming.status:
            await incoming.wait()
            incoming.check_head()
        if incoming.status >= 400:
            set_sent(False)  # refused, whenever its body comes
        return Answer(incoming)

    async def open_socket(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeouts: Timeouts, max_message: int
    ) -> UpstreamSocket:
        """A WebSocket that the upstream has accepted; messages of the upstream have at most `max_message` bytes.

        `url` begins with http or https. SocketRefused for another answer than 101, or an Upstream error.
        """
        whole = self._whole or self
        if whole._sockets is None:
            # Imported here, because aiohttp costs 9 MB and 90 ms.
            from gateway.http_client.upstream_socket import SocketClient

            whole._sockets = SocketClient(tls=whole._tls)
        sent = headers or {}
        named = named_headers(self._forwards, sent) if self._forwards else {}
        headers = {**sent, **named, **trace_headers()}
        head = new_head("GET", address_of(url), headers)  # checks address and headers
        proxy = None if self._proxies is None else _proxy_for(head, self._proxies)
        set_sent(False)
        socket = await whole._sockets.open(
            head.address, headers=headers, timeouts=timeouts, proxy=proxy, max_message=max_message
        )
        set_sent(True)
        return socket

    async def connects(self) -> bool | None:
        """Whether any host that got requests takes a connection; None if there is none, as with a proxy."""
        return await self._pool.connects(CONNECT_WITHIN) if self._pool is not None else None

    @property
    def made(self) -> int:
        """How many connections were made."""
        return self._pool.made if self._pool is not None else 0

    def waits(self) -> bool:
        """Whether calls have waited for a connection for more than `LONG_WAIT`, and none was made meanwhile."""
        return self._pool is not None and self._pool.waits(LONG_WAIT)

    async def close(self) -> None:
        """Close every connection, also those in use and those of views; a view has no connections itself."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._proxied is not None:
            await self._proxied.close()
            self._proxied = None
        if self._sockets is not None:
            await self._sockets.close()
            self._sockets = None

    def _open(self) -> Pool:
        whole = self._whole or self
        if whole._pool is None:
            loop = asyncio.get_running_loop()
            whole._pool = Pool(loop, Deadlines(loop), keepalive=whole._keepalive, tls=whole._tls)
        return whole._pool

    def _proxy_client(self) -> ProxiedClient:
        whole = self._whole or self
        if whole._proxied is None:
            # Imported here, so that only a process with a proxy loads aiohttp.
            from gateway.http_client.proxied import ProxiedClient

            whole._proxied = ProxiedClient(keepalive=whole._keepalive, tls=whole._tls)
        return whole._proxied


class Answer:
    """One upstream answer: its status and headers, and its body as it arrives. A context manager; or close it."""

    __slots__ = ("_content", "_inflater", "_parser", "_refusal", "headers", "status")

    def __init__(self, content: Response) -> None:
        self.status: int = content.status  # of HTTP
        self.headers: Mapping[str, str] = content.headers  # names in any case
        self._content = content
        self._inflater = Inflater(content.coding) if content.coding else None
        self._parser: EventParser | None = None
        self._refusal: bytes | None = None  # the whole body of an error status, once it was read

    async def read_chunk(self) -> bytes:
        """The bytes that arrived since the last call, or else the next bytes; b"" at the end of the body."""
        if self._inflater is None:
            return await self._content.take()
        return await self._read_inflated(self._inflater)

    async def read(self, *, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        """The whole body; UpstreamInvalidResponse when it is longer than `limit` bytes.

        The body of an error status can be read again, so that `raise_for_status` finds it after the provider.
        """
        content = self._content
        if self.status < 300 and content.ended and self._inflater is None:
            return content.taken(limit)  # the usual case, without another coroutine
        if self.status < 300:
            return await self._read(limit)
        if self._refusal is None:
            self._refusal = await self._read(limit)
        if len(self._refusal) > limit:
            raise UpstreamInvalidResponse(detail=f"the answer is over {limit} bytes")
        return self._refusal

    async def _read(self, limit: int) -> bytes:
        if self._inflater is None:
            return await self._content.whole(limit)
        chunks: list[bytes] = []
        size = 0
        while chunk := await self._read_inflated(self._inflater):
            if chunks:  # a large answer: other calls run between its steps
                await asyncio.sleep(0)
            size += len(chunk)
            if size > limit:
                self.close()
                raise UpstreamInvalidResponse(detail=f"the answer is over {limit} bytes")
            chunks.append(chunk)
        # A thread: 16 MiB take 12 ms, most of them for new pages of memory, without the interpreter's lock.
        return await asyncio.to_thread(b"".join, chunks) if size > FREE else b"".join(chunks)

    async def read_events(self, past: Lane | None = None) -> list[Event]:
        """The events of a stream that have arrived, or else the next ones; empty at the end of the body.

        While this call waits, arriving bytes that begin with a new event are first passed to `past`. If `past` returns
        True, it has handled them, and the wait continues.
        """
        parser = self._parser
        if parser is None:
            parser = self._parser = EventParser()
        while chunk := await self._read_beside(past if parser.between_events else None):
            if events := parser.feed(chunk):
                return events
        return parser.flush()

    @property
    def stray(self) -> bytes:
        """What a body that was read as events held in lines that belong to none, up to 64 KiB."""
        return self._parser.stray if self._parser is not None else b""

    def _read_beside(self, past: Lane | None) -> Awaitable[bytes]:
        """`read_chunk` with a lane; compressed bytes are not passed to the lane."""
        return self._content.take(past) if self._inflater is None else self._read_inflated(self._inflater)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they arrive."""
        while chunk := await self.read_chunk():
            yield chunk

    async def lines(self, *, limit: int = MAX_LINE_BYTES) -> AsyncIterator[bytes]:
        """The lines of a body such as NDJSON, one by one, without their ends and without empty lines.

        A last line without an end is one of them. UpstreamInvalidResponse for a line over `limit` bytes.
        """
        begun = bytearray()
        while chunk := await self.read_chunk():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                if line := _line_of(begun, end, limit):
                    yield line
                begun.clear()
            begun += rest
            if len(begun) > limit:
                break
        if line := _line_of(begun, b"", limit):
            yield line

    async def events(self) -> AsyncIterator[Event]:
        """The events of a stream, one by one; `read_events` is the faster form for a loop per frame."""
        while events := await self.read_events():
            for event in events:
                yield event

    def release(self) -> None:
        """Call this after the answer's own end marker: keeps the connection if the body ends within a second."""
        self._content.release()

    def close(self) -> None:
        """Close the socket at once, unless the body has ended; then the connection is in the pool already."""
        self._content.close()

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _read_inflated(self, inflater: Inflater) -> bytes:
        try:
            while not (chunk := inflater.step()):
                piece = await self._content.take()
                if not piece:
                    break
                inflater.feed(piece)
        except UpstreamInvalidResponse:
            self.close()
            raise
        if not chunk and not inflater.complete:
            raise UpstreamTruncated(detail="the compressed data ended before its end")
        return chunk


def _line_of(begun: bytearray, end: bytes, limit: int) -> bytes:
    """A line of two parts without the CR of its end."""
    if len(begun) + len(end) > limit:
        raise UpstreamInvalidResponse(detail=f"a line is over {limit} bytes")
    return (bytes(begun) + end).removesuffix(b"\r")


def _message(method: str, head: UpstreamHead, body: bytes | None) -> tuple[bytes, bytes]:
    """Head and body of a request whose body is complete."""
    if body is None and method not in WITH_BODY:
        return head.start + b"\r\n", b""
    body = body or b""
    return b"%bContent-Length: %d\r\n\r\n" % (head.start, len(body)), body


def _lines(headers: Mapping[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()


def _streamed_head(head: UpstreamHead) -> bytes:
    if head.length is None:
        return head.start + b"Transfer-Encoding: chunked\r\n\r\n"
    return b"%bContent-Length: %d\r\n\r\n" % (head.start, head.length)


def _proxy_for(head: UpstreamHead, proxies: Proxies) -> Proxy | None:
    address = head.address
    return proxies.proxy_for(address.scheme, address.host, address.port)

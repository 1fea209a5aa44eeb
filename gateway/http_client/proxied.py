"""Requests through an HTTP proxy: aiohttp makes the tunnel or sends the absolute form, and carries the exchange.

It is imported only if a provider has a proxy, because it costs 9 MB and 90 ms. One task per exchange passes arriving
data to the same `Response` as direct connections do, so time limits, back-pressure and errors are the same. Sharp edge:
aiohttp closes a connection only after it has sent its buffer, repeats a GET, and leaves the source of a body open. The
additional code here prevents this.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from aiohttp.tracing import Trace
from yarl import URL

from gateway.config.proxy import Proxy
from gateway.errors import UpstreamInvalidResponse
from gateway.http_client.connection import JOIN_BYTES, MAX_HEAD_BYTES
from gateway.http_client.proxied_errors import (
    PROXY_AUTHENTICATION_REQUIRED,
    ConnectionLost,
    before_answer,
    describe,
    refused,
)
from gateway.http_client.request import DEFAULT_HEADERS, OURS, UpstreamHead
from gateway.http_client.response import Response
from gateway.http_client.send_state import set_sent
from gateway.http_client.upload import Upload

READ_BUFFER_BYTES: Final = 64 * 1024  # aiohttp pauses at twice this

ActiveCalls = dict[asyncio.Task[None], "ProxiedExchange"]  # exchanges from their start to their end


class ProxiedClient:
    """All connections of a process through proxies."""

    def __init__(self, *, keepalive: float, tls: ssl.SSLContext | None) -> None:
        # aiohttp sets TCP_NODELAY itself. limit=0: its default would cap all streams of the process at 100.
        self._running: ActiveCalls = {}
        connector = _Connector(
            self._running, limit=0, keepalive_timeout=keepalive, ssl=tls if tls is not None else True
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            headers=DEFAULT_HEADERS,
            skip_auto_headers=("Content-Type",),
            middlewares=(_send_once,),
        )

    def start(
        self,
        incoming: Response,
        method: str,
        head: UpstreamHead,
        *,
        headers: Mapping[str, str],
        body: bytes | AsyncIterator[bytes] | None,
        connect: float,
        proxy: Proxy,
    ) -> None:
        """Send a request; its answer goes to `incoming`. Only address and length of the head are used."""
        address = head.address
        tunnel = address.scheme == "https"
        upload = None if body is None or isinstance(body, bytes) else Upload(incoming.watching(body), head.length)
        sent = {name: value for name, value in headers.items() if name.lower() not in OURS or name.lower() == "host"}
        if upload is not None and head.length is not None:
            sent["Content-Length"] = str(head.length)
        credentials = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
        request = partial(
            self._session.request,
            method,
            # It is quoted already, and some providers have signed it so: aiohttp must not quote it again.
            URL(f"{address.scheme}://{address.authority}{address.target}", encoded=True),
            headers=sent if tunnel else sent | credentials,
            data=upload or _payload(body),
            proxy=proxy.url,
            proxy_headers=credentials if tunnel else None,
            # aiohttp's other timers stay off: `Response` enforces the time limits.
            timeout=aiohttp.ClientTimeout(total=None, connect=connect),
            allow_redirects=False,
        )
        exchange = ProxiedExchange(incoming, upload, tunnel=tunnel)
        incoming.carried_by(exchange)
        exchange.start(request, self._running)

    async def close(self) -> None:
        """Close every connection, those in use included."""
        for exchange in tuple(self._running.values()):
            exchange.drop("the gateway closes its connections")
        await self._session.close()


class ProxiedExchange:
    """One request through aiohttp; a `Carrier`."""

    def __init__(self, incoming: Response, upload: Upload | None, *, tunnel: bool) -> None:
        self._incoming = incoming
        self._upload = upload
        self._tunnel = tunnel
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._task: asyncio.Task[None] | None = None

    def start(self, request: Callable[[], Awaitable[aiohttp.ClientResponse]], running: ActiveCalls) -> None:
        """Make the request and carry its answer; `running` contains the exchange meanwhile."""
        self._task = asyncio.get_running_loop().create_task(self._carry(request))
        self._task.add_done_callback(self._ended)
        self._task.add_done_callback(running.pop)
        running[self._task] = self

    def connected(self, connection: Connection) -> None:
        """Called with the connection of the request."""
        self._connection, self._transport = connection, connection.transport
        set_sent(True)

    def drop(self, why: str) -> None:
        """Close at once, and tell the reader of a running answer."""
        self.abort()
        self._incoming.cut(why)

    def pause(self) -> None:
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def abort(self) -> None:
        self._close()
        if self._task is not None:
            self._task.cancel()

    async def _carry(self, request: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> None:
        try:
            await self._receive(await request())
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:  # TimeoutError is an OSError
            self._failed(error)
        finally:
            self._close()
            if self._upload is not None:
                await self._upload.close()

    async def _receive(self, response: aiohttp.ClientResponse) -> None:
        incoming = self._incoming
        try:
            if response.status == PROXY_AUTHENTICATION_REQUIRED and not self._tunnel:
                incoming.fail(refused())
                return
            if response.status == 101:
                incoming.fail(UpstreamInvalidResponse(detail="switching protocols was not asked for"))
                return
            incoming.begin(response.status, response.headers, coding=response.headers.get("Content-Encoding", ""))
            incoming.wake()
            while piece := await response.content.readany():
                incoming.push(piece)
                await self._flowing.wait()
            incoming.end()
        finally:
            response.close()

    def _failed(self, error: Exception) -> None:
        if not self._incoming.status:
            self._incoming.fail(before_answer(error))
        elif isinstance(error, HttpProcessingError):
            self._incoming.fail(UpstreamInvalidResponse(detail=describe(error)))
        else:
            self._incoming.cut(describe(error))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None  # the traceback of a cancelled task refers to this object
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._incoming.fail(error)  # a bug of ours or of aiohttp's; the reader must not wait for its deadline

    def _close(self) -> None:
        """Close the socket at once, unless it is free again: aiohttp would first flush an incomplete request."""
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        if transport.is_closing() or connection.transport is transport:
            transport.abort()


class _Connector(aiohttp.TCPConnector):
    """Passes an exchange its connection at once, and rejects one on which the server sent data without a request."""

    def __init__(self, running: ActiveCalls, **options: Any) -> None:
        super().__init__(**options)
        self._exchanges = running

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        while connection.protocol is not None and connection.protocol.should_close:
            connection.close()  # the data would be taken for the answer to this request
            connection = await super().connect(req, traces, timeout)
        task = asyncio.current_task()
        assert task is not None
        self._exchanges[task].connected(connection)
        return connection


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Prevent aiohttp from repeating a GET if a kept connection is closed."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionLost(describe(error)) from error


def _payload(body: object) -> object:
    """A body for aiohttp, which copies large bytes objects and gives a warning."""
    return io.BytesIO(body) if isinstance(body, bytes) and len(body) > JOIN_BYTES else body

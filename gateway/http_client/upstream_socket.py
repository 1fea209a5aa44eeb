"""WebSockets to upstreams, by aiohttp: with the proxies, the TLS and the errors of other requests.

::

    socket = await upstream.open_socket(url, headers=headers, timeouts=target.timeouts, max_message=2**24)
    await socket.send(b'{"type": …}')      # waits while the upstream does not read
    event = await socket.receive()         # waits for the next text message

It is imported only if a provider opens a socket. Each direction buffers at most 64 KiB and one message: aiohttp stops
reading while nobody calls `receive`. Redirects are not followed. Sharp edge: `SocketRefused` is not an error of the
gateway; a provider makes one of it, as of the status of an answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from gateway.config.proxy import Proxy
from gateway.errors import UpstreamInvalidResponse, UpstreamTimeout, UpstreamTruncated
from gateway.http_client.connection import MAX_HEAD_BYTES
from gateway.http_client.proxied_errors import before_answer, describe
from gateway.http_client.request import DEFAULT_HEADERS, Address
from gateway.http_client.socket_refused import SocketRefused
from gateway.http_client.timeouts import Timeouts

PING_EVERY: Final = 30.0  # seconds; an upstream that answers no ping is gone after half of it
CLOSE_WITHIN: Final = 1.0  # seconds in which an upstream answers a close frame
MAX_REFUSAL: Final = 64 * 1024  # bytes of the body of a refused handshake that are read
REFUSAL_WITHIN: Final = 2.0  # seconds in which that body arrives
SWITCHING: Final = 101

#: The deadline of the handshake that the task makes, and the seconds for its answer.
_deadline: ContextVar[tuple[asyncio.Timeout, float]] = ContextVar("handshake_deadline")


class UpstreamSocket:
    """One open socket. One task sends, and one receives."""

    __slots__ = ("_closing", "_wire")

    def __init__(self, wire: aiohttp.ClientWebSocketResponse, closing: set[asyncio.Task[bool]]) -> None:
        self._wire = wire
        self._closing = closing

    async def send(self, text: bytes) -> None:
        """Send a text message of valid UTF-8; UpstreamTruncated if the socket is closed."""
        try:
            await self._wire.send_frame(text, aiohttp.WSMsgType.TEXT)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise UpstreamTruncated(detail=f"the socket is closed: {type(error).__name__}") from None

    async def receive(self) -> bytes:
        """The next text message.

        UpstreamTruncated if the socket was closed, UpstreamInvalidResponse if the message is not text, too long, or
        not UTF-8.
        """
        message = await self._wire.receive()
        if message.type is aiohttp.WSMsgType.TEXT:
            text: str = message.data
            return text.encode()
        if message.type is aiohttp.WSMsgType.BINARY:
            raise UpstreamInvalidResponse(detail="a binary message on a socket")
        if message.type is aiohttp.WSMsgType.ERROR:
            raise UpstreamInvalidResponse(detail=f"a faulty message on a socket ({self._wire.close_code})")
        raise UpstreamTruncated(detail=f"the upstream closed its socket ({self._wire.close_code})")

    def close(self) -> None:
        """Send a close frame, and close within a second; nothing more arrives. May be called again."""
        if self._wire.closed:
            return
        task = asyncio.get_running_loop().create_task(self._wire.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class SocketClient:
    """All sockets of a process to upstreams."""

    def __init__(self, *, tls: ssl.SSLContext | None) -> None:
        self._closing: set[asyncio.Task[bool]] = set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=tls if tls is not None else True),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            headers=DEFAULT_HEADERS,
            middlewares=(_refuse_other_answers,),
            trace_configs=[_connections()],
        )

    async def open(
        self, address: Address, *, headers: Mapping[str, str], timeouts: Timeouts, proxy: Proxy | None, max_message: int
    ) -> UpstreamSocket:
        """An open socket; SocketRefused, or an Upstream error."""
        credentials = {"Proxy-Authorization": proxy.authorization} if proxy is not None and proxy.authorization else {}
        tunnel = address.scheme == "https"
        within = min(timeouts.connect, timeouts.first_byte, timeouts.total)
        try:
            async with asyncio.timeout(within) as deadline:
                _deadline.set((deadline, timeouts.first_byte))
                wire = await self._session.ws_connect(
                    URL(f"{address.scheme}://{address.authority}{address.target}", encoded=True),
                    headers=headers if tunnel else {**headers, **credentials},
                    proxy=None if proxy is None else proxy.url,
                    proxy_headers=credentials if tunnel and credentials else None,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_WITHIN),
                    heartbeat=PING_EVERY,
                    max_msg_size=max_message,
                )
        except TimeoutError:
            raise UpstreamTimeout(detail=f"no WebSocket within {timeouts.first_byte:g} s") from None
        except aiohttp.WSServerHandshakeError as error:
            raise UpstreamInvalidResponse(detail=f"no WebSocket: {error.message}") from None
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise before_answer(error) from None
        except ValueError as error:  # a header that cannot be sent
            raise UpstreamInvalidResponse(detail=describe(error)) from None
        return UpstreamSocket(wire, self._closing)

    async def close(self) -> None:
        """Close every socket."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_WITHIN)
        await self._session.close()


def _connections() -> aiohttp.TraceConfig:
    """Tells when a connection is made: the time for the answer begins there."""

    async def connected(session: object, context: object, found: object) -> None:
        deadline, first_byte = _deadline.get()
        deadline.reschedule(asyncio.get_running_loop().time() + first_byte)

    config = aiohttp.TraceConfig()
    config.on_connection_create_end.append(connected)
    return config


async def _refuse_other_answers(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Raise SocketRefused for an answer other than 101, before aiohttp follows a redirect or drops the body."""
    answer = await send(request)
    if answer.status == SWITCHING:
        return answer
    body = b""
    try:
        async with asyncio.timeout(REFUSAL_WITHIN):
            while len(body) < MAX_REFUSAL and (piece := await answer.content.read(MAX_REFUSAL - len(body))):
                body += piece
    except (aiohttp.ClientError, TimeoutError):
        pass  # the status is enough
    finally:
        answer.close()
    raise SocketRefused(answer.status, answer.headers, body)

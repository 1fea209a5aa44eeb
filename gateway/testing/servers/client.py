"""Sends the requests of a situation, and keeps what comes back within bounds of time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct

from gateway.testing.servers.situations import CALL, ID, LIMIT, MODEL, OUTPUT, Step
from gateway.testing.servers.streams import LAST
from gateway.testing.standards.answers import NO_JSON

MOST = 8 * 1024 * 1024  # bytes of one answer
MOST_EVENTS = 10_000  # of one answer on a socket
ROOT = "/v1"  # the end of the base URL of OpenAI's clients


class Unreachable(Exception):
    """There is no server, or it does not accept the key; the message says which."""


class Unusable(Exception):
    """An answer that nothing can be read of; the message says why."""


class Received(Struct):
    """One answer: its body, or the messages of a socket."""

    status: int
    kind: str = ""  # the content type
    body: bytes = b""
    messages: list[bytes] = []


class Server(Struct, frozen=True):
    """Where the requests go. `limit`: of output tokens; `timeout`: seconds for one answer."""

    base_url: str
    key: str
    model: str
    limit: int = 1024
    timeout: float = 60.0

    def url(self, api: str, path: str) -> str:
        """The address of a path; Google's API lies beside `/v1`."""
        base = self.base_url.rstrip("/")
        if api == "gemini":
            base = f"{base.removesuffix(ROOT)}/v1beta"
        return base + path.replace(MODEL, quote(self.model, safe=""))

    def headers(self, api: str) -> Mapping[str, str]:
        """The key as the clients of the API send it."""
        if api == "messages":
            return {"x-api-key": self.key, "anthropic-version": "2023-06-01"}
        return {"x-goog-api-key": self.key} if api == "gemini" else {"Authorization": f"Bearer {self.key}"}


class Connection:
    """The requests of one situation; an async context manager."""

    def __init__(self, server: Server, api: str) -> None:
        self._server = server
        self._api = api
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def __aenter__(self) -> Connection:
        timeout = aiohttp.ClientTimeout(total=self._server.timeout)
        self._session = aiohttp.ClientSession(timeout=timeout, headers=self._server.headers(self._api))
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._session is not None:
            await self._session.close()

    async def send(self, step: Step) -> Received:
        """The answer to a request; Unreachable without a server, Unusable for an answer without an end."""
        try:
            async with asyncio.timeout(self._server.timeout):
                return await (self._over_socket(step) if step.socket else self._over_http(step))
        except TimeoutError:
            raise Unusable(f"no whole answer came in {self._server.timeout:g} s") from None
        except aiohttp.WSServerHandshakeError as error:
            return Received(error.status)
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(f"{self._server.base_url} cannot be reached: {error.strerror or error}") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise Unusable(f"the answer broke off: {type(error).__name__}") from None

    async def _over_http(self, step: Step) -> Received:
        assert self._session is not None, "it is open"
        method = "GET" if step.body is None else "POST"
        url = self._server.url(self._api, step.path)
        async with self._session.request(method, url, json=step.body, allow_redirects=False) as response:
            whole = b""
            async for piece in response.content.iter_any():
                whole += piece
                if len(whole) > MOST:
                    raise Unusable(f"the answer is larger than {MOST:,} bytes")
            return Received(response.status, response.headers.get("Content-Type", ""), whole)

    async def _over_socket(self, step: Step) -> Received:
        assert self._session is not None, "it is open"
        if self._socket is None:
            url = self._server.url(self._api, step.path)
            self._socket = await self._session.ws_connect(f"ws{url.removeprefix('http')}", max_msg_size=MOST)
        await self._socket.send_str(msgspec.json.encode(step.body).decode())
        received = Received(101)
        while len(received.messages) < MOST_EVENTS:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise Unusable(f"the socket was closed with code {self._socket.close_code}")
            received.messages.append(message.data.encode())
            try:
                kind = msgspec.json.decode(message.data, type=dict[str, Any]).get("type")
            except NO_JSON:
                raise Unusable("a message of the socket is no JSON object") from None
            if kind in LAST:
                return received
        raise Unusable(f"the answer has more than {MOST_EVENTS:,} events")


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A body with its placeholders filled in; `OUTPUT` becomes several items of its list."""
    if isinstance(value, dict):
        return {name: filled(one, values) for name, one in value.items()}
    if isinstance(value, list):
        return [one for item in value for one in (values[OUTPUT] if item == OUTPUT else [filled(item, values)])]
    return values[value] if isinstance(value, str) and value in (MODEL, LIMIT, ID, CALL, OUTPUT) else value

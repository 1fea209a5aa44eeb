"""A receiver of webhooks on loopback, which checks signatures with code of its own."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import time
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class Receiver:
    """Takes events; `answers` are the statuses of the next requests, 0 for none at all; then it answers 204.

    Before it is entered it is away: connections are refused, and no other process gets its port.
    """

    def __init__(self) -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(("127.0.0.1", 0))
        self.port: int = self.sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?team=a"
        self.answers: list[int] = []
        self.headers: dict[str, str] = {}  # of the answers
        self.attempts: list[dict[str, Any]] = []  # every signed message
        self.taken: list[dict[str, Any]] = []  # those that were answered with 2xx
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Receiver:
        self._server = await asyncio.start_server(self._serve, sock=self.sock)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def events(self, type_: str = "") -> list[dict[str, Any]]:
        """The events that were taken, each id once."""
        found = {event["id"]: event for event in self.taken if type_ in ("", event["type"])}
        return list(found.values())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except asyncio.CancelledError:
            pass  # at the end of the test; asyncio's own callback would log it
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        event = {**verified(headers, body), "target": head[0]}
        self.attempts.append(event)
        status = self.answers.pop(0) if self.answers else 204
        if not status:
            await asyncio.Event().wait()
        if 200 <= status < 300:
            self.taken.append(event)
        extra = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\nConnection: close\r\n{extra}\r\n{{}}".encode())
        await writer.drain()


def verified(headers: dict[str, str], body: bytes, secret: str = SECRET) -> dict[str, Any]:
    """The event in a message whose signature is right; AssertionError for any other."""
    sent_at = int(headers["webhook-timestamp"])
    assert abs(time.time() - sent_at) < 300
    signed = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode() + b"." + body
    key = base64.b64decode(secret[len("whsec_") :])
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert expected in headers["webhook-signature"].split(" ")
    event: dict[str, Any] = json.loads(body)
    assert set(event) == {"type", "timestamp", "data"}
    return {"id": headers["webhook-id"], **event}

"""What the transport refuses carries a request id, and is counted and logged, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from tornado.ioloop import IOLoop

from gateway.accounts.key_record import CreatedKey
from gateway.api.protocol_errors import ProtocolErrors
from gateway.api.routes import Application
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.log import AccessLine
from gateway.runtime.gateway import Gateway
from tests.polling import until


@pytest.fixture
def http_server(
    io_loop: IOLoop, app: Application, gateway: Gateway, _unused_port: tuple[object, int]
) -> Iterator[HTTPServer]:
    """The gateway behind its transport, as a worker puts it there."""
    limits = ServerLimits(header_timeout=0.4, body_idle_timeout=0.4, max_body_bytes=100_000)
    server = HTTPServer(app, limits, on_protocol_error=ProtocolErrors(gateway))
    io_loop.run_sync(lambda: server.start(_unused_port[0]))  # type: ignore[arg-type]
    yield server
    server.close_listener()
    io_loop.run_sync(lambda: server.drain(2.0))


@pytest.fixture
def lines(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> list[AccessLine]:
    """The access log."""
    written: list[AccessLine] = []
    monkeypatch.setattr(gateway.access_log, "enabled", True)
    monkeypatch.setattr(gateway.access_log, "write", written.append)
    return written


async def said(port: int, request: bytes) -> tuple[int, dict[str, str], dict[str, object]]:
    """Status, headers and error of the one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    return int(status.split()[1]), headers, json.loads(body)["error"]


def outcomes(gateway: Gateway) -> list[tuple[str, float]]:
    """Finished requests by endpoint and outcome."""
    delta = gateway.metrics.drain()
    counters = delta.counters if delta else []
    return [(f"{labels[0]} {labels[3]}", value) for name, labels, value in counters if name == "gateway_requests"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [(b"nonsense\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: x\r\n", 408)],
    ids=["malformed", "slow"],
)
async def test_unreadable_request_is_refused_and_logged(
    http_server: HTTPServer,
    _unused_port: tuple[object, int],
    gateway: Gateway,
    lines: list[AccessLine],
    request_: bytes,
    status: int,
) -> None:
    found, headers, error = await said(_unused_port[1], request_)
    assert found == status
    assert set(error) == {"message", "type", "param", "code"}
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    (line,) = await until(lambda: lines)
    assert (line.request_id, line.status) == (headers["x-request-id"], status)
    assert outcomes(gateway) == [(f"other {line.outcome}", 1.0)]


async def test_body_refused_by_the_transport_is_logged_as_what_the_client_saw(
    http_server: HTTPServer,
    _unused_port: tuple[object, int],
    gateway: Gateway,
    lines: list[AccessLine],
    api_key: CreatedKey,
) -> None:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api_key.text}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 500\r\nX-Client-Request-Id: mine\r\n\r\n"
    found, headers, error = await said(_unused_port[1], head.encode() + b'{"model":')
    assert (found, headers["x-client-request-id"]) == (408, "mine")
    assert set(error) == {"message", "type", "param", "code"}
    (line,) = await until(lambda: lines)
    assert (line.status, line.account, line.request_id) == (408, "acme", headers["x-request-id"])
    assert outcomes(gateway) == [(f"chat {line.outcome}", 1.0)]
    assert line.outcome != "client_closed"

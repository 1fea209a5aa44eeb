"""The base of the handlers of the pages and of the admin API: each concern is there once."""

from __future__ import annotations

import inspect
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tornado.web import Application, RequestHandler, stream_request_body

import gateway.admin_api.handler
import gateway.console.handler
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.console.static_files import StaticHandler
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.log import AccessLine
from gateway.web.handler import LoggedRequest, Surface, WebHandler
from gateway.web.piecewise import MOST_OF_ONE
from tests.hostile.raw import Answer, connection

MOST_METHODS, DEEPEST = 20, 3
#: Public files have no access line, and browsers keep them.
WITHOUT_BASE: set[type[RequestHandler]] = {StaticHandler}
HANDLERS: set[type[RequestHandler]] = {
    found
    for module in (gateway.admin_api.handler, gateway.console.handler)
    for found in vars(module).values()
    if inspect.isclass(found) and issubclass(found, RequestHandler)
} - {RequestHandler, WebHandler}
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def test_all_handlers_but_that_of_public_files_have_the_base() -> None:
    assert len(HANDLERS) > 4
    assert {one for one in HANDLERS if not issubclass(one, WebHandler)} == WITHOUT_BASE


@pytest.mark.parametrize("handler", sorted(HANDLERS - WITHOUT_BASE, key=str))
def test_handler_has_few_methods_and_few_ancestors(handler: type[WebHandler]) -> None:
    own = handler.__mro__[: handler.__mro__.index(RequestHandler)]
    assert len(own) <= DEEPEST
    names = {value.__name__ for one in own for value in vars(one).values() if inspect.isfunction(value)}
    assert len(names) <= MOST_METHODS, sorted(names)


class Served:
    """A handler on a port; `lines` are its access lines."""

    def __init__(self, surface: Surface) -> None:
        self.surface = surface
        self.lines: list[AccessLine] = []
        surface.access_log.write = self.lines.append  # type: ignore[method-assign, assignment]
        self.address = ("", 0)

    async def ask(self, data: bytes = GET) -> Answer | None:
        async with connection(self.address) as client:
            await client.send(data)
            return await client.read()


@asynccontextmanager
async def served(
    handler: type[WebHandler], settings: Callable[[], Settings] = lambda: parse({})
) -> AsyncIterator[Served]:
    found = Served(Surface("the test", settings))
    rules: list[Any] = [("/.*", handler, {"surface": found.surface})]
    server = HTTPServer(Application(rules, log_function=lambda _: None), ServerLimits())
    sock = socket.create_server(("127.0.0.1", 0))
    found.address = sock.getsockname()
    await server.start(sock)
    try:
        yield found
    finally:
        server.close_listener()
        await server.drain(0.0)


class Texts(WebHandler):
    """Answers errors with their messages."""

    def initialize(self, surface: Surface) -> None:
        self.use(surface)

    def refuse(self, error: Exception) -> None:
        found = self.note_error(error)
        self.set_status(found.status)
        self.finish(found.message)

    def logged(self) -> LoggedRequest | None:
        return None if self.request.path == "/unlogged" else LoggedRequest(path="/shown", account="acme", key="k")


class Fails(Texts):
    """Has a bug."""

    def get(self) -> None:
        try:
            raise RuntimeError("a secret")
        except RuntimeError as error:
            self.refuse(error)


async def test_fault_is_an_internal_error_and_one_access_line(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Fails) as s:
        answer = await s.ask()
        assert answer is not None and answer.status == 500 and b"secret" not in answer.body
        [line] = s.lines
        assert (line.path, line.account, line.key, line.method) == ("/shown", "acme", "k", "GET")
        assert (line.status, line.outcome) == (500, "internal_error")
        assert line.request_id == answer.headers["x-request-id"]
        assert caplog.messages == [f"{line.request_id} failed in the test"]
        assert (answer.headers["cache-control"], "etag" in answer.headers) == ("no-store", False)


async def test_settings_of_the_moment_and_the_handler_decide_whether_there_is_a_line() -> None:
    settings = [parse({"log": {"access": False}})]
    async with served(Fails, lambda: settings[-1]) as s:
        await s.ask()
        assert s.lines == []
        settings.append(parse({}))
        await s.ask(b"GET /unlogged HTTP/1.1\r\nHost: x\r\n\r\n")
        assert s.lines == []
        await s.ask()
        assert len(s.lines) == 1


@stream_request_body
class Bodies(Texts):
    """Takes ten bytes."""

    def prepare(self) -> None:
        self.body.admit(10)

    def post(self) -> None:
        self.finish(self.body.content)


async def test_body_is_kept_within_its_bound() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    async with served(Bodies) as s:
        answer = await s.ask(head + b"5\r\nabcde\r\n5\r\nfghij\r\n0\r\n\r\n")
        assert answer is not None and (answer.status, answer.body) == (200, b"abcdefghij")
        async with connection(s.address) as client:
            await client.send(head + b"5\r\nabcde\r\n6\r\nfghijk\r\n5\r\nlmnop\r\n")
            assert [answer.status for answer in await client.read_all()] == [413]
        assert [line.outcome for line in s.lines] == ["ok", "request_too_large"]


async def test_file_without_a_place_is_closed_and_its_answer_is_the_refusal() -> None:
    closed, files = list[str](), list[AsyncGenerator[bytes]]()

    async def pieces(name: str) -> AsyncGenerator[bytes]:
        try:
            yield name.encode()
        finally:
            closed.append(name)

    class Files(Texts):
        async def get(self) -> None:
            files.append(found := pieces(self.request.path))
            await anext(found)  # as after its first page
            await self.send_pieces(found, self.surface.downloads.place("ann"), {"Content-Type": "text/csv"})

    async with served(Files) as s:
        with s.surface.downloads.place("ann"), s.surface.downloads.place("ann"), s.surface.downloads.place("ann"):
            with s.surface.downloads.place("ann"):
                answer = await s.ask()
            assert answer is not None and answer.status == 429
            assert f"{MOST_OF_ONE} downloads" in answer.body.decode()
            assert "csv" not in answer.headers["content-type"]
            assert closed == ["/"]

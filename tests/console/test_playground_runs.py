"""Calls of the playground: a few of one person at a time, and none for a browser that has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tornado.web import Application, RequestHandler

from gateway.console import playground_runs
from gateway.console.playground_runs import MOST_OF_USER
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.http_server.tls_pair import new_own_client
from gateway.http_server.tls_state import TlsState
from gateway.runtime.sockets import bind_all
from tests.certificate_files import CertificateFiles
from tests.polling import until

PATH = "/accounts/acme/playground"
RUN = '{"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}'


async def test_calls_that_begin_together_are_counted_and_their_places_are_given_back(console, monkeypatch) -> None:
    running = 0

    async def endless(*_: Any) -> AsyncGenerator[dict[str, Any]]:
        nonlocal running
        running += 1
        try:
            yield {"request_id": "req_1"}
            await asyncio.Event().wait()
        finally:
            running -= 1

    monkeypatch.setattr(playground_runs, "_lines", endless)
    async with console() as c:
        browser = await c.as_("ann", acme="member")
        form = {"run": RUN, "xsrf": await browser.token()}
        asked = [asyncio.create_task(browser.ask("POST", PATH, form)) for _ in range(MOST_OF_USER + 4)]
        await until(lambda: running + sum(task.done() for task in asked) == len(asked))
        refused = [task.result() for task in asked if task.done()]
        assert [(one.status, "too many calls running" in one.text) for one in refused] == [(429, True)] * 4
        for task in asked:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await until(lambda: running == 0)
        again = asyncio.create_task(browser.ask("POST", PATH, form))
        await until(lambda: running == 1)
        again.cancel()
        with suppress(asyncio.CancelledError):
            await again
        await until(lambda: running == 0)


class Hello(RequestHandler):
    """A stream of one word, as of `/v1/chat/completions`."""

    def post(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self.finish('data: {"choices": [{"delta": {"content": "hello"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')


@pytest.mark.holds("operations/tls.md#client-certificates-2")
async def test_calls_reach_an_api_with_tls_that_asks_for_a_certificate(console, tmp_path: Path) -> None:
    pairs = CertificateFiles(tmp_path / "tls").pairs(client_ca=True, own_client=new_own_client())
    api = HTTPServer(Application([("/v1/.*", Hello)]), ServerLimits(), tls=TlsState(pairs.api))
    [sock] = bind_all("127.0.0.1", 0, 1)
    await api.start(sock)
    try:
        async with console() as c:
            services, browser = c.services, await c.as_("ann", acme="member")
            server = structs.replace(services.settings.server, port=sock.getsockname()[1], tls_cert="a", tls_key="b")
            services.use(structs.replace(services.settings, server=server))
            services.tls = TlsState(pairs.console)
            answer = await browser.ask("POST", PATH, {"run": RUN, "xsrf": await browser.token()})
            assert '{"text":"hello"}' in answer.text
            assert '{"end":"stop"}' in answer.text
    finally:
        api.close_listener()
        await api.drain(0.0)

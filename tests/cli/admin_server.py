"""The admin API on a thread of its own, for commands that run in the test's thread."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tornado.httpserver import HTTPServer

from gateway.admin_api.api import AdminApi
from gateway.admin_api.authentication import Authentication
from gateway.admin_api.server import AdminServer
from gateway.config.settings import Settings
from gateway.runtime.sockets import bind_all
from gateway.services.services import AdminServices
from gateway.store import Store
from gateway.store.configured import configured_address


@contextmanager
def admin_server(settings: Settings) -> Iterator[str]:
    """Serve until the context ends; its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="admin-api", daemon=True)
    thread.start()
    stop = asyncio.Event()
    started: asyncio.Future[int] = asyncio.Future(loop=loop)

    async def serve() -> None:
        store = await Store.open(configured_address(settings) or "", timeout=20.0)
        services = AdminServices(settings, store)
        server = AdminServer(AdminApi(services, Authentication(services)))
        await server.start(bind_all("127.0.0.1", 0, 1)[0])
        started.set_result(server.address[1])
        await stop.wait()
        await server.close()
        await services.close()
        await store.close()

    async def port() -> int:
        return await started

    serving = asyncio.run_coroutine_threadsafe(serve(), loop)
    try:
        yield f"http://127.0.0.1:{asyncio.run_coroutine_threadsafe(port(), loop).result(60)}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        serving.result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def foreign_server(status: int, body: bytes, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server that gives every request the same answer; its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    [sock] = bind_all("127.0.0.1", 0, 1)

    def answer(request) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        request.connection.stream.write(head.encode() + body)
        request.connection.finish()

    async def start() -> HTTPServer:
        sock.listen()
        server = HTTPServer(answer, ssl_options=tls)
        server.add_socket(sock)
        return server

    async def stop(server: HTTPServer) -> None:
        server.stop()
        await server.close_all_connections()

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    try:
        yield sock.getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(server), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

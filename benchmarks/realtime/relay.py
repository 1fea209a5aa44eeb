"""A relay of WebSockets without keys, money, limits and counts: `python -m benchmarks.realtime.relay PORT UPSTREAM`.

It is what the gateway is compared with: aiohttp's server on one side, its client on the other, uvloop below.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import WSMsgType, web

UPSTREAM = web.AppKey("upstream", str)
CLIENT = web.AppKey("client", aiohttp.ClientSession)


async def relay(request: web.Request) -> web.WebSocketResponse:
    """Pass messages on in both directions."""
    session = request.app[CLIENT]
    async with session.ws_connect(f"{request.app[UPSTREAM]}{request.path_qs}", max_msg_size=1 << 25) as inner:
        outer = web.WebSocketResponse(max_msg_size=1 << 25)
        await outer.prepare(request)

        async def back() -> None:
            async for message in inner:
                if message.type is WSMsgType.TEXT:
                    await outer.send_str(message.data)
            await outer.close()

        task = asyncio.create_task(back())
        async for message in outer:
            if message.type is WSMsgType.TEXT:
                await inner.send_str(message.data)
        task.cancel()
    return outer


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Make the client, and close it at the end."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        app[CLIENT] = session
        yield


if __name__ == "__main__":
    application = web.Application()
    application[UPSTREAM] = sys.argv[2]
    application.cleanup_ctx.append(connect)
    application.router.add_get("/v1/realtime", relay)
    web.run_app(
        application,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        print=None,
        access_log=None,
        loop=uvloop.new_event_loop(),
    )

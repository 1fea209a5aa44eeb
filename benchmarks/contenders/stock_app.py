"""A pass-through proxy as one would write it first: Tornado's RequestHandler, aiohttp's ClientSession, no keys.

Run as `python stock_app.py PORT UPSTREAM`. It checks nothing, counts nothing and does not look into the stream. Two
lines go beyond the defaults, because without them the defaults would be measured instead of the libraries: TCP_NODELAY
(Nagle holds a first token back for 40 ms) and no limit of 100 upstream connections.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
from tornado import web
from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer


class Proxy(web.RequestHandler):
    """POST goes to the upstream, and what comes back goes to the client."""

    def initialize(self, session: aiohttp.ClientSession, upstream: str) -> None:
        """Called by Tornado for each request."""
        self.session = session
        self.upstream = upstream

    async def post(self) -> None:
        """Pass on piece by piece, whether it is JSON or a stream."""
        connection = self.request.connection
        assert isinstance(connection, HTTP1Connection)
        connection.stream.set_nodelay(True)
        url = self.upstream + self.request.path
        headers = {"Content-Type": "application/json"}
        async with self.session.post(url, data=self.request.body, headers=headers) as response:
            self.set_status(response.status)
            self.set_header("Content-Type", response.headers["Content-Type"])
            if response.content_type != "text/event-stream":
                await self.finish(await response.read())
                return
            async for piece in response.content.iter_any():
                self.write(piece)
                await self.flush()


async def main(port: int, upstream: str) -> None:
    """Serve until the process is ended."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        rule = (r"/v1/.*", Proxy, {"session": session, "upstream": upstream})
        server = HTTPServer(web.Application([rule]))
        server.listen(port, "127.0.0.1", backlog=4096)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))

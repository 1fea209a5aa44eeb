"""People with the Usage page open: `python -m benchmarks.console.sessions ADDRESS LINK PATH COUNT`.

It uses the sign-in link, signs in so often, and says `ready`. For each line `go` on stdin, every session asks for the
page once a second, until a line `stop` comes; then it prints what came back, as JSON. A page asks for nothing else when
it is loaded again: its files are in the browser's cache.
"""

from __future__ import annotations

import asyncio
import re
import sys
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
from msgspec import Struct

EVERY = 1.0  # seconds between two requests of a session
PASSWORD = "a password of the bench"
XSRF = re.compile(r'name="xsrf" value="([^"]+)"')
TIMEOUT = aiohttp.ClientTimeout(total=30.0)
LONG = aiohttp.ClientTimeout(total=600.0)


class Replayed(Struct):
    """What the sessions of a phase got; times in ms."""

    pages: int = 0
    failures: int = 0  # of them
    bytes: int = 0
    p50: float = 0.0
    p99: float = 0.0


class Visitor:
    """One session, with cookies and a connection of its own; or a program with an admin token."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            connector=aiohttp.TCPConnector(limit=1),
            timeout=TIMEOUT,
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()

    async def set_password(self, link: str) -> str:
        """Use a sign-in link; returns the e-mail address that it is for."""
        parts = urlsplit(link)
        [token] = parse_qs(parts.query)["token"]
        page = f"{parts.path}?{parts.query}"
        html = await self._post(page, parts.path, token=token, action="password", password=PASSWORD, repeated=PASSWORD)
        found = re.search(r"<strong>([^<]+@[^<]+)</strong>", html)
        assert found is not None
        return found[1]

    async def sign_in(self, email: str) -> None:
        """Sign in by password."""
        await self._post("/sign-in", "/sign-in", email=email, password=PASSWORD)

    async def get(self, path: str) -> tuple[int, int]:
        """The status of a page and the bytes of its body, without following a redirect."""
        async with self._http.get(self._url + path, allow_redirects=False, timeout=LONG) as answer:
            size = 0
            async for part in answer.content.iter_any():
                size += len(part)
            return answer.status, size

    async def _post(self, page: str, path: str, **form: str) -> str:
        """Send the form of a page; returns the page."""
        async with self._http.get(self._url + page) as shown:
            html = await shown.text()
        found = XSRF.search(html)
        assert found is not None, html
        form["xsrf"] = found[1]
        async with self._http.post(self._url + path, data=form, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
        return html

    async def replay(self, path: str, offset: float, told: Replayed, times: list[float]) -> None:
        """Ask for the page every second, until the task is cancelled."""
        clock = asyncio.get_running_loop().time
        due = clock() + offset
        while True:
            await asyncio.sleep(max(0.0, due - clock()))
            began = clock()
            try:
                async with self._http.get(self._url + path, allow_redirects=False) as answer:
                    body = await answer.read()
                is_whole = answer.status == 200 and b"</html>" in body
            except (aiohttp.ClientError, TimeoutError):
                body, is_whole = b"", False
            times.append(clock() - began)
            told.pages, told.failures, told.bytes = told.pages + 1, told.failures + (not is_whole), len(body)
            due = max(due + EVERY, clock())


async def run(url: str, link: str, path: str, count: int) -> None:
    """Sign in, and replay while stdin says so."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    visitors = [Visitor(url) for _ in range(count)]
    try:
        email = await visitors[0].set_password(link)
        for visitor in visitors[1:]:
            await visitor.sign_in(email)
        print("ready", flush=True)
        while await lines.readline():
            told, times = Replayed(), list[float]()
            tasks = [
                asyncio.create_task(visitor.replay(path, EVERY * number / count, told, times))
                for number, visitor in enumerate(visitors)
            ]
            await lines.readline()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            times.sort()
            if times:  # on a busy machine a short phase may end before the first page
                told.p50, told.p99 = (round(1000 * times[int(part * (len(times) - 1))], 2) for part in (0.5, 0.99))
            print(msgspec.json.encode(told).decode(), flush=True)
    finally:
        for visitor in visitors:
            await visitor.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))

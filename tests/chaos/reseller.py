"""A reseller: accounts over the admin API, payments by a webhook, many calls, and what each of them must have cost.

What a call costs is computed here from the upstream's own log and the price table of the test, in fractions, and not by
the gateway's code.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import math
import os
import re
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from msgspec import Struct

from gateway.amounts import format_amount, parse_amount
from gateway.testing.ports import free_ports
from tests.fake_clock import FakeClock
from tests.polling import until
from tests.processes.served import Served

PAGE = Path(__file__).parents[2] / "docs" / "admin-api.md"
PER_MILLION = 1000  # nano-units for a token at a price of 1 for a million
CONNECTIONS = 48
#: The fake provider, which writes down what it counts for whom.
UPSTREAM = """
import os
from gateway import hookimpl
from gateway_providers.fake import FakeProvider

class Logged(FakeProvider):
    name = "logged-fake"

    def __init__(self, options, upstream):
        super().__init__(options, upstream)
        self._log = os.open("{log}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def stream_chat(self, request, target):
        async for chunk in super().stream_chat(request, target):
            if chunk.usage:
                counted = chunk.usage
                line = f"{{request.user}} {{counted.prompt_tokens}} {{counted.completion_tokens}}\\n"
                os.write(self._log, line.encode())
            yield chunk

@hookimpl
def register_providers(register):
    register(Logged)
"""


class Price(NamedTuple):
    """A price for a million tokens, as decimal text."""

    input: str
    output: str

    def cost(self, tokens_in: int, tokens_out: int, factor: str) -> int:
        """Nano-units of a call, rounded up once."""
        per_token = [Fraction(amount) * PER_MILLION for amount in self]
        return math.ceil((tokens_in * per_token[0] + tokens_out * per_token[1]) * Fraction(factor))


class Account(Struct):
    """What the reseller knows of an account, in nano-units."""

    name: str
    key: str
    factor: str = "1"  # of its group, or its own
    own: dict[str, Price] = {}  # by model: own amounts
    own_factors: dict[str, str] = {}
    user: str = ""  # the member who has the key
    budget: int | None = None


class Paid(Struct, frozen=True):
    """A call and its answer."""

    name: str
    account: str
    model: str
    status: int
    request_id: str
    cost: int  # as its header says
    began: datetime
    ended: datetime


class Wanted(NamedTuple):
    """A call to make."""

    account: Account
    model: str
    words: int
    most: int  # tokens of the answer


class Admin:
    """The admin API with a token."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self.url = url
        self.token = token

    async def ask(self, method: str, path: str, body: Any = None, *, key: str = "", status: int = 0) -> Any:
        """The document of a successful answer, or of one with `status`."""
        headers = self._headers(self.token) | ({"Idempotency-Key": key} if key else {})
        async with self._session.request(method, f"{self.url}/admin/v1{path}", json=body, headers=headers) as response:
            document = await response.json()
            assert response.status == status or (not status and response.status < 300), document
            return document

    async def text(self, path: str) -> str:
        """The text of a successful answer."""
        async with self._session.get(f"{self.url}/admin/v1{path}", headers=self._headers(self.token)) as response:
            assert response.status == 200, response
            return await response.text()

    async def get(self, url: str, key: str) -> Any:
        """The document of an answer of the public port to an account's key."""
        async with self._session.get(url, headers=self._headers(key)) as response:
            document = await response.json()
            assert response.status == 200, document
            return document

    async def serving(self) -> None:
        """Wait until it answers."""

        async def answers() -> bool:
            try:
                await self.ask("GET", "/token")
            except aiohttp.ClientError:
                return False
            return True

        await until(answers, within=60.0)

    @staticmethod
    def _headers(secret: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {secret}"}


class Webhook:
    """The receiver of docs/admin-api.md, and a payment provider that sends it signed events."""

    def __init__(self, folder: Path, admin_url: str, token: str, clock: FakeClock) -> None:
        (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        self._script = folder / "webhook.py"
        self._script.write_text(code)
        self._secret = os.urandom(24)
        [self._port] = free_ports(1)
        self._clock = clock
        self._variables = {
            "GATEWAY_SERVER": admin_url,
            "GATEWAY_TOKEN": token,
            "WEBHOOK_SECRET": "whsec_" + base64.b64encode(self._secret).decode(),
            "PORT": str(self._port),
        }
        self._lanes = asyncio.Semaphore(8)
        self.receipts: dict[
            str, list[tuple[str, int, datetime]]
        ] = {}  # by event: account, amount, time; one a delivery

    @asynccontextmanager
    async def running(self, session: aiohttp.ClientSession) -> AsyncIterator[Webhook]:
        """The receiver runs in the block, under the clock of now."""
        self._session = session
        environment = {**os.environ, **self._variables, **self._clock.environment}
        process = subprocess.Popen([sys.executable, str(self._script)], env=environment, stderr=subprocess.DEVNULL)
        try:
            await until(self._listens, within=20.0)
            yield self
        finally:
            process.kill()
            process.wait()

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.close()
        return True

    async def pay(self, account: str, amount: int, *, times: int = 1, event: str = "") -> str:
        """Deliver a payment so many times at once; each delivery must be taken. Returns the event's id."""
        event = event or "evt_" + secrets.token_hex(8)
        await asyncio.gather(*(self._deliver(event, account, amount) for _ in range(times)))
        return event

    async def _deliver(self, event: str, account: str, amount: int) -> None:
        body = json.dumps({"account": account, "amount": format_amount(amount), "invoice": event}).encode()
        moment = str(int(self._clock.now().timestamp()))
        signature = hmac.digest(self._secret, f"{event}.{moment}.".encode() + body, "sha256")
        headers = {"webhook-id": event, "webhook-timestamp": moment}
        headers["webhook-signature"] = "v1," + base64.b64encode(signature).decode()
        url = f"http://127.0.0.1:{self._port}/"
        for _ in range(5):  # a provider sends it again
            async with self._lanes, self._session.post(url, data=body, headers=headers) as response:
                if response.status != 503:
                    break
        assert response.status == 204, response
        self.receipts.setdefault(event, []).append((account, amount, self._clock.now()))


class Callers:
    """Many connections to `/v1`, each with one call after the other."""

    def __init__(self, gateway: Served, clock: FakeClock) -> None:
        self._gateway = gateway
        self._clock = clock
        self._next = 0
        self.answers: list[Paid] = []

    async def make(self, calls: Iterable[Wanted]) -> None:
        """Make all calls."""
        waiting = iter(calls)
        await asyncio.gather(*(self._connection(waiting) for _ in range(CONNECTIONS)))

    async def _connection(self, waiting: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._gateway.port)
        for wanted in waiting:
            self._next += 1
            name, began = f"call-{self._next}", self._clock.now()
            writer.write(_request(wanted, name))
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            headers = dict(line.split(": ", 1) for line in head.lower().split("\r\n")[1:] if line)
            await reader.readexactly(int(headers["content-length"]))
            status, cost = int(head.split(" ", 2)[1]), headers.get("x-gateway-cost", "0")
            request_id, now = headers["x-request-id"], self._clock.now()
            account = wanted.account.name
            self.answers.append(Paid(name, account, wanted.model, status, request_id, parse_amount(cost), began, now))
        writer.close()


def _request(wanted: Wanted, name: str) -> bytes:
    body = json.dumps(
        {
            "model": wanted.model,
            "user": name,
            "max_tokens": wanted.most,
            "messages": [{"role": "user", "content": "word " * wanted.words}],
        }
    ).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
        + f"Authorization: Bearer {wanted.account.key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def counted(log: Path) -> dict[str, tuple[int, int]]:
    """The upstream's log: tokens in and out by call, each of which it must have served once."""
    lines = [line.split() for line in log.read_text().splitlines()]
    counts = {name: (int(tokens_in), int(tokens_out)) for name, tokens_in, tokens_out in lines}
    assert len(counts) == len(lines), "the upstream served a call twice"
    return counts

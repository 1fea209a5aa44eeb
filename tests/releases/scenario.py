"""What a recorded version does before it is killed: it stores one of everything that a later version must open.

Two days before: accounts in two groups, keys, prices, people, and a page and a half of calls. Then: a settlement that
the store refuses, an answer that is kept for a repeated request, and streams under which all processes are killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import redis

from gateway.ledger.inflight_checkpoint import BOOT
from tests.chaos.versions import Versioned
from tests.discovery.lists import OLLAMA
from tests.fake_clock import FakeClock
from tests.polling import until
from tests.processes.served import MODELS, command_of
from tests.releases.listed_models import LISTED, listing_server
from tests.releases.registry import AccountFacts, Facts, KeyFacts, Line
from tests.releases.stored_people import hide_alert, store_people

CALLS = 55  # more than a page of the console has
STREAMS = 3
GROUP = """
[groups.vip]
rpm = 600

[models.vip]
provider = "fake"
model = "quick"
groups = ["vip"]
max_output_tokens = 64
price = { input = 3000, output = 5000 }
"""
FACTOR = ("rpm = 600\n", "rpm = 600\nprice_factor = 0.5\n")
TWO_DAYS = timedelta(days=2)


class Recorded:
    """A gateway of a version whose code is in `source`, at two times."""

    def __init__(self, gateway: Versioned, clock: FakeClock, archive: Path, *, console_port: int) -> None:
        self.gateway = gateway
        self.clock = clock
        self.archive = archive
        self.console_port = console_port
        self.keys: dict[str, KeyFacts] = {}
        self.has_people = self._has("console")
        self.has_alerts = self._has("attention")
        self.has_lists = self._has("discovery")
        gateway.configure(self.models)

    def _has(self, package: str) -> bool:
        return (self.gateway.source / "gateway" / package).is_dir()

    @property
    def models(self) -> str:
        """The providers, models and groups that the version knows."""
        text = MODELS + (GROUP.replace(*FACTOR) if self.has_people else GROUP)
        return text + LISTED if self.has_lists else text

    async def record(self, noon: datetime) -> Facts:
        """Run everything; all processes are gone at the end."""
        with listing_server() if self.has_lists else nullcontext():
            await self._start(noon - TWO_DAYS)
            await self._open_accounts()
            people = await store_people(self.gateway, self.console_port, self.clock) if self.has_people else None
            for _ in range(CALLS):
                await self._call("plain")
            await self._call("dear" if self.has_people else "vip")
            await self._imported()
            await self._stop()
            await self._start(noon)
            if not self.has_people:
                await self.gateway.command("compact", "--all", "--before", "26h", "--archive", str(self.archive))
            refused = await self._refuse_one()
            body = await once(self.gateway)
            for name, key in self.keys.items():
                self.keys[name] = await self._known(key)
            hidden = await hide_alert(self.console_port, people) if self.has_alerts and people else ""
            listed = await self._listed() if self.has_lists else []
            await self._imported()
            self.gateway.api_key = self.keys["plain"].text
            streams = await self.gateway.flowing(STREAMS, "endless")
            accounts = {name: await self._account(name) for name in ("test", "acme", "gone")}
            await self.gateway.kill_all()
            for stream in streams:
                await stream.ended()
        boot = BOOT.read_text().strip()
        return Facts(accounts, self.keys, body, refused, STREAMS, boot, people, hidden, listed)

    async def _start(self, at: datetime) -> None:
        self.clock.set(at)
        self.gateway.environment |= self.clock.environment
        await self.gateway.started(workers=self.gateway.count)
        assert self.gateway.code() == self.gateway.source

    async def _stop(self) -> None:
        os.kill(self.gateway.pid, signal.SIGTERM)
        assert await self.gateway.ended() == 0

    async def _imported(self) -> None:
        """Wait until the database, if the version has one, has the lines of the store."""

        async def is_done() -> bool:
            report = json.loads((await asyncio.to_thread(self.gateway.run, "audit", "--json")).stdout)
            return bool(not self.has_people or report["history_lines"] >= report["lines"])

        await until(is_done)

    async def _open_accounts(self) -> None:
        command = self.gateway.command
        await command("accounts", "create", "test", "--balance", "100")
        await command("accounts", "create", "acme", "--balance", "20", "--group", "vip")
        await command("accounts", "create", "gone", "--balance", "10")
        await command("accounts", "deny", "test", "slow")
        await self._key("plain", "test", "--budget", "50")
        await self._key("narrow", "test", "--models", "endless", status=403)
        await self._key("revoked", "test", status=401)
        await self._key("vip", "acme", "--rpm", "60", model="vip")
        await self._key("dear", "acme", model="vip")
        await self._key("gone", "gone")
        ids = {key["name"]: key["id"] for key in await command("keys", "list", "test")}
        await command("keys", "revoke", ids["revoked"])
        if self.has_people:
            await command("accounts", "price", "acme", "vip", "--set", "input=7,output=11")
        self.gateway.api_key = self.keys["plain"].text

    async def _key(self, name: str, account: str, *options: str, model: str = "quick", status: int = 200) -> None:
        made = await self.gateway.command("keys", "create", account, "--name", name, *options)
        self.keys[name] = KeyFacts(str(made["key"]), account, model, status)

    async def _call(self, name: str) -> None:
        key = self.keys[name]
        answer = await self.gateway.chat(key.model, key=key.text)
        assert answer.status == key.status, answer.body

    async def _known(self, key: KeyFacts) -> KeyFacts:
        """The key with what a call costs and what the list of keys says."""
        answer = await self.gateway.chat(key.model, key=key.text)
        assert answer.status == key.status, answer.body
        name = next(name for name, one in self.keys.items() if one is key)
        listed = await self.gateway.command("keys", "list", key.account)
        [shown] = [one for one in listed if one["name"] == name]
        kept = {field: shown[field] for field in ("id", "name", "last4", "state", "budget", "rpm")}
        cost = await charge(self.gateway, key, answer.headers) if key.status == 200 else ""
        return KeyFacts(key.text, key.account, key.model, key.status, cost, kept)

    async def _account(self, name: str) -> AccountFacts:
        shown = await self.gateway.command("accounts", "show", name)
        kept = {field: shown[field] for field in ("balance", "state", "group")}
        return AccountFacts(kept, await lines_of(self.gateway, name))

    async def _refuse_one(self) -> str:
        """A call whose account is lost while it runs: its settlement is set aside."""
        self.gateway.api_key = self.keys["gone"].text
        stream = await self.gateway.stream("slow").flowing()
        found = re.search(r"unixsocket:(\S+)", command_of(self.gateway.store_pid))
        assert found is not None
        with redis.Redis(unix_socket_path=found[1]) as client:
            kept = {name: client.dump(name) for name in client.scan_iter(match="{a:gone}*")}
            client.delete(*kept)
            await stream.ended()
            path = self.gateway.data_dir / "journal" / "refused.jsonl"
            await until(lambda: path.exists() and path.read_text().endswith("\n"))
            for name, content in kept.items():
                if not name.endswith((b":rv", b":rx", b":cc")) and b":cc:" not in name:
                    client.restore(name, 0, content, replace=True)
            client.hset("{a:gone}", "held", "0")
        self.gateway.api_key = self.keys["plain"].text
        return re.findall(r'"(req_[^"]+)"', path.read_text())[-1]

    async def _listed(self) -> list[str]:
        """The models that the list of a provider adds."""
        data: Any = OLLAMA["data"]
        names = {f"listed/{one['id']}" for one in data}

        async def served() -> set[str]:
            return names & set(await models_of(self.gateway))

        await until(served)
        return sorted(await served())


async def once(gateway: Versioned) -> str:
    """The body of a request that is always the same, with an Idempotency-Key; a header says whether it is replayed."""
    return (await asked_once(gateway.base_url, gateway.api_key))[1]


async def asked_once(url: str, key: str) -> tuple[bool, str]:
    """Whether the answer was kept, and its body."""
    body = {"model": "quick", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "only-once"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/chat/completions", json=body, headers=headers) as response,
    ):
        assert response.status == 200
        return "Idempotent-Replayed" in response.headers, await response.text()


async def charge(gateway: Any, key: KeyFacts, headers: dict[str, str]) -> str:
    """The amount of the line of a call, once it is booked."""
    request_id = {name.lower(): value for name, value in headers.items()}["x-request-id"]

    async def booked() -> str:
        lines = await lines_of(gateway, key.account)
        return next((line.amount for line in lines if line.request_id == request_id), "")

    return await until(booked)


async def lines_of(gateway: Any, account: str) -> list[Line]:
    """The lines of an account, the oldest first."""
    found = await gateway.command("usage", account)
    return [Line(one["request_id"], one["kind"], one["amount"], one["balance"]) for one in found]


async def models_of(gateway: Any) -> list[str]:
    """What is served."""
    headers = {"Authorization": f"Bearer {gateway.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{gateway.base_url}/models", headers=headers) as response,
    ):
        return [one["id"] for one in (await response.json())["data"]]

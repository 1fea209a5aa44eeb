"""What each release has stored is opened, migrated, imported and audited clean by this version.

`tests/releases` has a data directory with its store of each release, which was killed during streams.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import aiohttp
import pyotp
import pytest

from gateway.amounts import parse_amount
from gateway.testing.ports import free_ports
from tests.fake_clock import FakeClock
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served
from tests.processes.test_importer import rows
from tests.releases.registry import ARCHIVE, DATA, MODELS, Facts, Release, releases, unpacked
from tests.releases.scenario import asked_once, charge, lines_of, models_of
from tests.releases.stored_people import browser_of

RELEASES = {release.version: release for release in releases()}
LATER = 35  # seconds after the end of the recorded one: a code of the second factor later, and before a lease ends

#: Of [store]. The store has the real time, at which the recorded lines are old: without this they leave it meanwhile.
KEPT = 'keep_lines = "6y"\n'

HIDDEN_WITHIN = 20.0  # seconds: a console looks for alerts every few seconds


class Opened:
    """This version on what a release has stored."""

    def __init__(self, gateway: Served, facts: Facts, clock: FakeClock, console_port: int, folder: Path) -> None:
        self.gateway = gateway
        self.facts = facts
        self.clock = clock
        self.console_port = console_port
        self.folder = folder

    async def audit(self) -> Any:
        """The report of an audit that finds nothing, once the database has all lines of the store."""
        await until(self._is_imported)
        report = await self.gateway.command("audit")
        assert report["mismatches"] == []
        return report

    async def _is_imported(self) -> bool:
        """Whether the last line of each account is in the database."""
        found = dict(rows(self.gateway, "SELECT account, last_seq FROM import_state"))
        async with self.gateway.session() as session:
            for account in self.facts.accounts:
                if max([line.n async for line in session.ledger.lines(account)]) != found.get(account):
                    return False
        return True


async def opened(yard: Yard, release: Release) -> Opened:
    """Start this version at the time of the release, on its data directory."""
    folder = yard.folder / "recorded"
    facts = unpacked(release, folder)
    clock = FakeClock(yard.folder, datetime.fromtimestamp(release.recorded + LATER, UTC))
    [port] = free_ports(1)
    models = KEPT + (folder / MODELS).read_text()
    gateway = yard.make(models, name="opened", workers=2, console_port=port)
    (folder / DATA).rename(gateway.data_dir)
    gateway.data_dir.chmod(0o700)
    gateway.environment |= clock.environment
    gateway.api_key = facts.keys["plain"].text
    await gateway.started(workers=2)

    async def released() -> bool:
        return (await gateway.account()).held == 0

    await until(released)
    return Opened(gateway, facts, clock, port, folder)


@pytest.mark.holds("operations/upgrade.md#what-is-tested-1", "operations/upgrade.md#what-is-tested-2")
@pytest.mark.parametrize("version", RELEASES)
async def test_what_a_release_stored_is_opened_and_audited_clean(yard: Yard, version: str) -> None:
    now = await opened(yard, RELEASES[version])
    await money_is_as_it_was(now)
    await keys_work_as_before(now)
    await refused_settlement_is_booked(now)
    await history_is_whole(now)
    if now.facts.people is not None:
        await people_sign_in(now)
    assert set(now.facts.discovered) <= set(await models_of(now.gateway))


async def money_is_as_it_was(now: Opened) -> None:
    """Each line is what it was, and a balance differs by the lines of the killed streams only."""
    replayed, body = await asked_once(now.gateway.base_url, now.gateway.api_key)
    assert (replayed, body) == (True, now.facts.once)
    for name, account in now.facts.accounts.items():
        lines = await lines_of(now.gateway, name)
        older = len(account.lines)
        assert lines[:older] == account.lines
        streams = now.facts.streams if name == "test" else 0
        refused = [line for line in lines[older:] if line.request_id == now.facts.refused]
        assert len(lines) - older == streams + len(refused)
        # A line for "reclaim" is made without the journal of the killed worker.
        assert {line.kind for line in lines[older:]} <= {"use"}
        shown = await now.gateway.command("accounts", "show", name)
        charged = sum(parse_amount(line.amount) for line in lines[older:])
        assert parse_amount(shown["balance"]) == parse_amount(account.shown["balance"]) + charged
        assert {field: shown[field] for field in ("state", "group")} | {"balance": ""} == account.shown | {
            "balance": ""
        }
        assert shown["held"] in ("0", "0.00")


async def keys_work_as_before(now: Opened) -> None:
    """A key is answered as it was, at the price that it had."""
    for name, key in now.facts.keys.items():
        answer = await now.gateway.chat(key.model, key=key.text)
        assert answer.status == key.status, name
        if key.status == 200:
            assert await charge(now.gateway, key, answer.headers) == key.cost, name
        listed = await now.gateway.command("keys", "list", key.account)
        [shown] = [one for one in listed if one["id"] == key.shown["id"]]
        assert {field: shown[field] for field in key.shown} == key.shown


async def refused_settlement_is_booked(now: Opened) -> None:
    """A settlement that the store refused is listed, and it is booked once.

    A version without a database moved lines into an archive. It left journals that do not say which settlements are
    stored, so those of such lines are listed, too. None of them is charged again, because the archive has them.
    """
    archive = now.folder / ARCHIVE
    listed = {one["request_id"]: one["account"] for one in await now.gateway.command("refused", "list")}
    assert listed.pop(now.facts.refused) == "gone"
    assert archive.exists() or not listed
    before = await lines_of(now.gateway, "test")
    archives = ["--archive", str(archive)] if archive.exists() else []
    booked = await now.gateway.command("refused", "book", "--all", *archives)
    assert {one["state"] for one in booked} == {"booked"}
    assert await now.gateway.command("refused", "list") == []
    assert await lines_of(now.gateway, "test") == before
    lines = [line for line in await lines_of(now.gateway, "gone") if line.request_id == now.facts.refused]
    assert [line.kind for line in lines] == ["use"]


async def history_is_whole(now: Opened) -> None:
    """The database has each line, also those of an archive; a backup of all is made."""
    report, archive = await now.audit(), now.folder / ARCHIVE
    if archive.exists():
        done = await now.gateway.command("history", "import-archive", str(archive))
        assert done["lines"] > 0
        after = await now.audit()
        assert after["history_lines"] == report["history_lines"] + done["lines"]
        assert (await now.gateway.command("audit", "--archive", str(archive)))["mismatches"] == []
        report = after
    saved = await now.gateway.command("backup", str(now.folder / "backup"))
    assert saved["history_lines"] == report["history_lines"]


async def people_sign_in(now: Opened) -> None:
    """The session goes on; password and code begin another. All pages of the list of calls are read."""
    people = now.facts.people
    assert people is not None
    async with browser_of(now.console_port, people.session) as browser:
        await until(lambda: _is_up(now.console_port))
        assert people.operator in (await browser.get("/profile")).text
        if now.facts.hidden:
            alert = f'hidden from you.{{,1000}}value="{re.escape(now.facts.hidden)}"'

            async def is_hidden() -> bool:
                return re.search(alert, (await browser.get("/site/alerts")).html) is not None

            await until(is_hidden, within=HIDDEN_WITHIN)
    async with browser_of(now.console_port) as browser:
        fields: dict[str, Any] = {"email": people.operator, "password": people.password}
        asked = await browser.post("/sign-in", page="/sign-in", **fields)
        code = pyotp.TOTP(people.secret).at(now.clock.now())
        await browser.post("/sign-in/code", page=asked.location, code=code)
        page, shown, calls = "/accounts/test/usage?range=7d", 0, set[str]()
        while page:
            html = (await browser.get(page)).html
            calls |= set(re.findall(r"/accounts/test/usage/(req_\w+)", html))
            older = re.search(r'href="([^"]+)">Older', html)
            page, shown = unescape(older[1]) if older else "", shown + 1
    known = {line.request_id for line in now.facts.accounts["test"].lines if line.kind == "use"}
    assert known <= calls
    assert shown > 1
    roles = {user["email"]: user["role"] for user in await now.gateway.command("users", "list")}
    assert roles == people.roles
    assert len(await now.gateway.command("audit-trail", "--limit", "1000")) >= people.events
    url, headers = f"http://127.0.0.1:{now.console_port}/admin/v1/accounts", {"Authorization": f"Bearer {people.token}"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.status == 200


async def _is_up(port: int) -> bool:
    try:
        async with browser_of(port) as browser:
            return (await browser.ask("GET", "/sign-in")).status == 200
    except aiohttp.ClientError:
        return False

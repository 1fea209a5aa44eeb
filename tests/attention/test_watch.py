"""What needs an operator is kept with the time since when, shared by all consoles, and hidden from who wants that."""

from __future__ import annotations

import msgspec
import pytest

from gateway.admin.machine_state import MachineState
from gateway.admin.machines import KnownMachines, Machine, announce
from gateway.attention import dismissals
from gateway.attention.alerts import KEPT, OPEN
from gateway.attention.audit_findings import read_audits, remember_audit
from gateway.attention.finding import ExpiringToken, Finding
from gateway.attention.stored_facts import StoredFacts
from gateway.attention.watch import AttentionWatch
from gateway.config.loader import parse
from gateway.errors import DatabaseUnavailable
from gateway.ledger import AuditReport
from gateway.ledger.auditing.report import Mismatch
from gateway.routing.circuit_sync import HASH, CircuitEvent
from gateway.store import Store
from tests.world import OpenWorld

SETTINGS = parse({"providers": {"one": {"plugin": "fake"}}, "models": {"m": {"provider": "one", "free": True}}})
SOUND = MachineState(reports=True, workers=1, workers_wanted=1)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Facts:
    """What the database has."""

    def __init__(self) -> None:
        self.found: StoredFacts | None = StoredFacts()

    async def __call__(self) -> StoredFacts:
        if self.found is None:
            raise DatabaseUnavailable
        return self.found


def watching(store: Store, clock: Clock, facts: Facts | None = None) -> AttentionWatch:
    """The watch of one console."""
    return AttentionWatch(store, KnownMachines(store), lambda: SETTINGS, facts or Facts(), clock=clock)


async def report(store: Store, **state: object) -> None:
    """The entry of the machine."""
    await announce(store, Machine("1", "one:8080", "aaa", "1.0", state=msgspec.structs.replace(SOUND, **state)))


def texts(findings: list[Finding]) -> list[str]:
    return [one.id for one in findings]


async def test_finding_has_its_begin_and_is_an_alert_when_it_begins_and_when_it_ends(world: OpenWorld) -> None:
    async with world() as w:
        clock = Clock()
        watch = watching(w.store, clock)
        await report(w.store, refused_settlements=1)
        await watch.refresh()
        clock.now += 10
        await watch.refresh()
        [finding] = watch.findings
        assert (finding.id, finding.since) == ("refused:one:8080", 1_000_000.0)
        await report(w.store)
        for _ in range(2):  # another console may have looked a moment before
            assert len(watch.alerts) == 1
            clock.now += 10
            await watch.refresh()
        assert watch.findings == []
        assert [(one.began, one.at) for one in watch.alerts] == [(False, 1_000_030.0), (True, 1_000_000.0)]
        assert watch.alerts[0].text.startswith("The store refused 1 settlement")


async def test_consoles_share_since_when_and_report_each_change_once(world: OpenWorld) -> None:
    async with world() as w:
        clock = Clock()
        first, second = watching(w.store, clock), watching(w.store, clock)
        await report(w.store, refused_settlements=1)
        await first.refresh()
        clock.now += 500
        await second.refresh()
        assert second.findings[0].since == first.findings[0].since == 1_000_000.0
        await report(w.store)
        for watch in (first, second) * 2:
            await watch.refresh()
        assert [one.began for one in second.alerts] == [False, True]


async def test_condition_must_last_before_it_is_shown_and_a_short_one_is_no_alert(world: OpenWorld) -> None:
    async with world() as w:
        clock = Clock()
        watch = watching(w.store, clock)
        event = CircuitEvent("w", "one", 0, "m", "failures", 1e9, 1e9)
        link = w.store.link(HASH)
        await link.call("HSET", HASH, event.field, msgspec.json.encode(event))
        await watch.refresh()
        clock.now += 299
        await watch.refresh()
        assert watch.findings == [] and [one.provider for one in watch.circuits] == ["one"]
        await link.call("DEL", HASH)
        await watch.refresh()
        await link.call("HSET", HASH, event.field, msgspec.json.encode(event))
        clock.now += 299
        await watch.refresh()
        assert watch.findings == [] and watch.alerts == []
        clock.now += 300
        await watch.refresh()
        assert texts(watch.findings) == ["circuits:one"]


async def test_hidden_finding_is_hidden_from_one_person_for_a_time_in_all_consoles(world: OpenWorld) -> None:
    async with world() as w:
        clock = Clock()
        watch, other = watching(w.store, clock), watching(w.store, clock)
        await report(w.store, refused_settlements=1)
        await watch.refresh()
        assert await watch.dismiss("usr_1", "refused:one:8080", 3600)
        assert not await watch.dismiss("usr_1", "unknown", 3600)
        await other.refresh()
        for console in (watch, other):
            assert console.shown_to("usr_1") == []
            assert texts(console.shown_to("usr_2")) == ["refused:one:8080"]
        clock.now += 3600
        assert texts(watch.shown_to("usr_1")) == ["refused:one:8080"]


async def test_finding_that_ends_and_begins_again_is_shown_to_who_hid_the_first_one(world: OpenWorld) -> None:
    async with world() as w:
        clock = Clock()
        watch = watching(w.store, clock)
        await report(w.store, refused_settlements=1)
        await watch.refresh()
        await watch.dismiss("usr_1", "refused:one:8080", 1e6)
        await report(w.store)
        for _ in range(2):
            clock.now += 10
            await watch.refresh()
        await report(w.store, refused_settlements=1)
        clock.now += 10
        await watch.refresh()
        assert texts(watch.shown_to("usr_1")) == ["refused:one:8080"]


async def test_number_of_hidden_findings_and_of_alerts_is_bounded(
    world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dismissals, "MOST", 3)
    async with world() as w:
        finding = Finding("x", "fault", "X.", "/site", "alerts", since=5.0)
        for number in range(6):
            await dismissals.dismiss(w.store, f"usr_{number}", finding, 100.0 + number, now=0.0)
        known = await dismissals.read_dismissals(w.store)
        assert sorted(name.partition(" ")[0] for name in known) == ["usr_3", "usr_4", "usr_5"]
        clock = Clock()
        watch = watching(w.store, clock)
        for number in range(KEPT + 10):
            await report(w.store, reload_problem="no", reload_at=float(number))
            await watch.refresh()
        await watch.refresh()
        assert len(watch.alerts) == KEPT
        assert await w.store.link(OPEN).call("HLEN", OPEN) <= 2


async def test_console_without_a_store_says_so_and_keeps_what_it_knew(world: OpenWorld) -> None:
    async with world() as w:
        clock = Clock()
        watch = watching(w.store, clock)
        await report(w.store, refused_settlements=1)
        await watch.refresh()
    # The store is closed now.
    await watch.refresh()
    clock.now += 10
    await watch.refresh()
    assert texts(watch.findings) == ["store", "refused:one:8080"]


async def test_facts_of_the_database_are_found_and_a_database_that_is_away_too(world: OpenWorld) -> None:
    async with world() as w:
        clock, facts = Clock(), Facts()
        facts.found = StoredFacts([ExpiringToken("ci", clock.now + 60)], superseded=2)
        watch = watching(w.store, clock, facts)
        await watch.refresh()
        assert texts(watch.findings) == ["superseded", f"tokens:{int(clock.now + 60)}"]
        facts.found = None
        away = watching(w.store, clock, facts)
        await away.refresh()
        clock.now += 10
        await away.refresh()
        assert texts(away.findings)[0] == "database"


async def test_findings_of_an_audit_stay_until_one_of_the_same_accounts_has_none(world: OpenWorld) -> None:
    async with world() as w:
        bad = AuditReport(mismatches=[Mismatch("acme", "balance", "1", "2")])
        await remember_audit(w.store, None, bad)
        await remember_audit(w.store, "acme", bad)
        assert {one.account: one.mismatches for one in await read_audits(w.store)} == {"": 1, "acme": 1}
        watch = watching(w.store, Clock())
        await watch.refresh()
        assert [one.text for one in watch.findings] == ["The last audit of acme has 2 findings."]
        await remember_audit(w.store, "acme", AuditReport(unreachable=["a server"]))
        await remember_audit(w.store, "acme", AuditReport())
        assert [one.account for one in await read_audits(w.store)] == [""]
        await remember_audit(w.store, None, AuditReport(unreachable=["a server"]))
        assert len(await read_audits(w.store)) == 1
        await remember_audit(w.store, None, AuditReport())
        assert await read_audits(w.store) == []

"""`gateway usage` and `gateway audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.billing.usage import Usage
from gateway.cli import usage
from gateway.ledger import Ledger, archive_checkpoint
from gateway.ledger.api_key import ApiKey
from gateway.store import Store
from tests.ledger.archiving import archive
from tests.ledger.records import quote_of, settle
from tests.world import World

from .conftest import Terminal, on_store

LINE_FIELDS = {
    "request_id",
    "kind",
    "at",
    "model",
    "served_model",
    "provider",
    "key",
    "amount",
    "balance",
    "usage",
    "estimated",
    "attempts",
}


@pytest.fixture
def acme(terminal: Terminal, valkey: Path) -> Terminal:
    """A terminal with one account that has paid for one call."""
    terminal.ok("accounts", "create", "acme", "--balance", "10")
    key_id = terminal.json("keys", "create", "acme")["id"]
    on_store(valkey, lambda store: _pay(store, ApiKey("acme", key_id)))
    return terminal


async def _pay(store: Store, key: ApiKey) -> None:
    ledger = Ledger(store, {})
    hold = await ledger.admit("req_1", key, quote_of(10**9, 5, model="fake-chat"))
    await settle(ledger, hold, 250_000_000, provider="fake", usage=Usage(in_text=3, out_text=2))


def test_usage_shows_charges_as_negative_amounts(acme: Terminal) -> None:
    opened, charged = acme.json("usage", "acme")
    assert opened.keys() >= LINE_FIELDS
    assert charged.keys() >= LINE_FIELDS
    assert (opened["kind"], opened["amount"], opened["balance"]) == ("open", "10", "10")
    assert (charged["request_id"], charged["kind"]) == ("req_1", "use")
    assert (charged["amount"], charged["balance"]) == ("-0.25", "9.75")
    assert (charged["model"], charged["provider"], charged["estimated"]) == ("fake-chat", "fake", False)
    assert charged["usage"] == {"in_text": 3, "out_text": 2}


def test_usage_names_the_serving_and_the_requested_model(terminal: Terminal, valkey: Path) -> None:
    terminal.ok("accounts", "create", "acme", "--balance", "10")
    key_id = terminal.json("keys", "create", "acme")["id"]

    async def pay(store: Store) -> None:
        for request_id, served_model in (("req_1", ""), ("req_2", "fake-small")):
            ledger = Ledger(store, {})
            hold = await ledger.admit(request_id, ApiKey("acme", key_id), quote_of(10, tokens=0, model="fake-chat"))
            await settle(ledger, hold, 1, served_model=served_model)

    on_store(valkey, pay)
    named = [(line["model"], line["served_model"]) for line in terminal.json("usage", "acme")]
    assert named == [(None, None), ("fake-chat", "fake-chat"), ("fake-chat", "fake-small")]
    assert "fake-small" in terminal.ok("usage", "acme")


def test_usage_as_a_table_has_a_line_per_ledger_line(acme: Terminal) -> None:
    assert len(acme.ok("usage", "acme").splitlines()) == 3


@pytest.mark.parametrize(("since", "lines"), [("1h", 2), ("2999-01-01T00:00:00Z", 0), ("2020-01-01", 2)])
def test_usage_is_limited_to_lines_since_a_time(acme: Terminal, since: str, lines: int) -> None:
    assert len(acme.json("usage", "acme", "--since", since)) == lines


def test_unknown_account_is_refused(acme: Terminal) -> None:
    assert acme.refused("usage", "nobody") == "gateway: no account 'nobody'\n"
    assert acme.refused("audit", "nobody") == "gateway: no account 'nobody'\n"


def clean(**counts: int) -> dict[str, Any]:
    """The report on one sound account."""
    listed: dict[str, Any] = {"mismatches": [], "unreachable": [], "moving": []}
    listed |= {"late": [], "uncollected": [], "overdrawn": [], "superseded": [], "changes": []}
    listed |= {"superseded_lines": 0, "lost_changes": 0}
    return {
        "accounts": 1,
        "history_lines": 0,
        "recomputed": 0,
        "not_recomputed": 0,
        "left_lines": 0,
        **listed,
        **counts,
    }


@pytest.mark.holds("operations/audit.md#audit-2")
def test_audit_of_a_correct_ledger_reports_nothing(acme: Terminal) -> None:
    assert acme.json("audit") == clean(lines=2, not_recomputed=1)
    assert acme.json("audit", "acme") == clean(lines=2, not_recomputed=1)


@pytest.mark.holds("operations/audit.md#audit-3")
def test_audit_finds_a_manipulated_balance(acme: Terminal, valkey: Path) -> None:
    def tamper(store: Store) -> Any:
        return store.client.hincrby("{a:acme}", "bal", 5)

    on_store(valkey, tamper)
    result = acme.run("audit", "--json")
    assert result.exit_code == 1
    assert '"rule":"balance"' in result.stdout
    text = acme.run("audit", "acme")
    assert text.exit_code == 1
    assert "balance" in text.stdout


@pytest.mark.holds("operations/audit.md#audit-3")
def test_audit_names_a_lost_account_and_the_number_of_accounts_is_remembered(
    acme: Terminal, tmp_path: Path, valkey: Path
) -> None:
    acme.ok("accounts", "create", "umbra")
    assert '"accounts":2' in (tmp_path / "var" / "accounts.json").read_text()
    on_store(valkey, lambda store: store.client.delete("{a:umbra}"))
    result = acme.run("audit")
    assert result.exit_code == 1
    assert "umbra" in result.stdout
    assert "umbra" in acme.run("audit", "umbra").stdout


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-11", "operations/audit.md#audit-7")
def test_emptied_store_is_found_without_an_option_until_it_is_said_to_be_right(
    acme: Terminal, tmp_path: Path, valkey: Path
) -> None:
    assert acme.run("audit", "--expect-accounts", "2").exit_code == 1
    (tmp_path / "var" / "accounts.json").write_text("no JSON")
    acme.ok("audit")  # it remembers what it sees
    on_store(valkey, lambda store: store.client.flushall())
    result = acme.run("audit", "--json")
    assert result.exit_code == 1
    assert '{"account":"*","rule":"accounts","expected":"1 or more","found":"0"}' in result.stdout
    acme.ok("audit", "--expect-accounts", "0")
    acme.ok("audit")


@pytest.mark.holds("operations/audit.md#audit-2", "operations/audit.md#late-and-uncollected-1")
def test_audit_lists_late_and_uncollected_amounts_and_ends_well(acme: Terminal, valkey: Path) -> None:
    key_id = acme.json("keys", "list", "acme")[0]["id"]

    async def late(store: Store) -> None:
        ledger = Ledger(store, {})
        hold = await ledger.admit("req_2", ApiKey("acme", key_id), quote_of(10**9, 5))
        await store.client.delete("{a:acme}:rv", "{a:acme}:rx")
        await store.client.hset("{a:acme}", "held", 0)
        await settle(ledger, hold, 20 * 10**9)

    on_store(valkey, late)
    found = acme.json("audit")
    assert found["late"] == [{"account": "acme", "request_id": "req_2", "line": 3, "amount": "-10.75"}]
    assert found["uncollected"] == [{"account": "acme", "lines": 1, "amount": "9.25"}]
    assert found["overdrawn"] == [{"account": "acme", "amount": "1"}]
    text = acme.ok("audit")
    assert "Charged after the hold was lost:" in text
    assert "9.25" in text


@pytest.fixture
def old(acme: Terminal, valkey: Path) -> Terminal:
    """The same, two days later."""

    async def age(store: Store) -> None:
        name = "{a:acme}:lg"
        entries: Any = await store.client.xrange(name)
        await store.client.delete(name)
        for id_, fields in entries:
            ms, _, step = id_.decode().partition("-")
            await store.client.xadd(name, fields, id=f"{int(ms) - 48 * 3_600_000}-{step}")

    on_store(valkey, age)
    return acme


@pytest.mark.holds("operations/audit.md#audit-23")
def test_audit_without_the_database_of_the_lines_that_left_the_store_is_not_clean(
    old: Terminal, valkey: Path, tmp_path: Path
) -> None:
    on_store(valkey, lambda store: archive(World(store, {}), tmp_path / "old.jsonl"))
    for account in ((), ("acme",)):
        result = old.run("audit", "--json", *account)
        assert result.exit_code == 1
        (found,) = json.loads(result.stdout)["mismatches"]
        assert (found["rule"], found["expected"]) == ("history missing", "2 lines that left the store")


def test_audit_and_usage_read_an_archive_of_an_older_version(old: Terminal, valkey: Path, tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    whole = old.json("usage", "acme")
    on_store(valkey, lambda store: archive(World(store, {}), file))
    assert old.json("audit", "--archive", str(file)) == clean(lines=2)
    (carry,) = old.json("usage", "acme")
    assert (carry["kind"], carry["balance"], carry["at"]) == ("carry", "9.75", whole[-1]["at"])
    assert old.json("usage", "acme", "--archive", str(file)) == whole
    file.write_text("no JSON\n")
    assert "line 1" in old.refused("audit", "--archive", str(file))


def test_kind_of_a_carried_line_is_the_ledgers() -> None:
    assert usage.CARRY == archive_checkpoint.CARRY

"""`gateway usage` and `gateway audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.billing.usage import Usage
from gateway.ledger import Ledger
from gateway.ledger.api_key import ApiKey
from gateway.store import Store
from tests.ledger.records import quote_of, settle

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


def test_audit_of_a_correct_ledger_reports_nothing(acme: Terminal) -> None:
    assert acme.json("audit") == {"accounts": 1, "lines": 2, "mismatches": [], "unreachable": []}
    assert acme.json("audit", "acme") == {"accounts": 1, "lines": 2, "mismatches": [], "unreachable": []}


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


@pytest.mark.parametrize("whose", ["acme", "--all"])
def test_compact_moves_old_lines_and_the_audit_reports_nothing(old: Terminal, tmp_path: Path, whose: str) -> None:
    archive = str(tmp_path / "old.jsonl")
    whole = old.json("usage", "acme")
    assert old.json("compact", whose, "--before", "26h", "--archive", archive) == {"accounts": 1, "lines": 2}
    assert old.json("compact", whose, "--before", "26h", "--archive", archive) == {"accounts": 0, "lines": 0}
    assert old.json("audit") == {"accounts": 1, "lines": 0, "mismatches": [], "unreachable": []}
    assert old.json("audit", "--archive", archive) == {"accounts": 1, "lines": 2, "mismatches": [], "unreachable": []}
    (carry,) = old.json("usage", "acme")
    assert (carry["kind"], carry["balance"], carry["at"]) == ("carry", "9.75", whole[-1]["at"])
    assert old.json("usage", "acme", "--archive", archive) == whole


def test_compact_refuses_invalid_ages_accounts_and_archives(old: Terminal, tmp_path: Path) -> None:
    archive = str(tmp_path / "old.jsonl")
    assert "25 h" in old.refused("compact", "acme", "--before", "1h", "--archive", archive)
    assert "nobody" in old.refused("compact", "nobody", "--before", "2d", "--archive", archive)
    old.refused("compact", "--before", "2d", "--archive", archive, status=2)
    old.refused("compact", "acme", "--all", "--before", "2d", "--archive", archive, status=2)
    (tmp_path / "old.jsonl").write_text("no JSON\n")
    assert "line 1" in old.refused("compact", "acme", "--before", "2d", "--archive", archive)
    assert old.json("audit") == {"accounts": 1, "lines": 2, "mismatches": [], "unreachable": []}

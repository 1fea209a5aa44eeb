"""`gateway refused`: list and book."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.entry import Entry
from gateway.ledger.refused import RefusedFile
from gateway.store import Store

from .conftest import Terminal, on_store


@pytest.fixture
def file(terminal: Terminal, valkey: Path, tmp_path: Path) -> RefusedFile:
    """Three refused settlements: two of an account that exists now, one of an account that does not."""
    terminal.ok("accounts", "create", "acme", "--balance", "10")
    key = terminal.json("keys", "create", "acme")["id"]
    meta = json.dumps({"key": key, "model": "fake-chat"})
    seconds = on_store(valkey, _time)
    folder = tmp_path / "var" / "journal"
    folder.mkdir(parents=True)
    file = RefusedFile(folder)
    for number, account in enumerate(("acme", "acme", "nobody")):
        file.add(Entry(account, f"req_{number}", key, "use", -250_000_000, 1, seconds * 1_000_000, meta, hold=10**9))
    return file


async def _time(store: Store) -> Any:
    return (await store.client.time())[0]


def balance(terminal: Terminal) -> str:
    text: str = terminal.json("accounts", "show", "acme")["balance"]
    return text


def test_list_shows_each_entry_and_whether_it_can_be_booked(terminal: Terminal, file: RefusedFile) -> None:
    found = terminal.json("refused", "list")
    assert [(row["request_id"], row["account"], row["amount"], row["state"]) for row in found] == [
        ("req_0", "acme", "-0.25", "open"),
        ("req_1", "acme", "-0.25", "open"),
        ("req_2", "nobody", "-0.25", "no account"),
    ]
    assert found[0]["at"].endswith("Z")


def test_booked_entries_leave_the_file_and_are_charged_once(terminal: Terminal, file: RefusedFile) -> None:
    first = file.read()[0]
    assert terminal.json("refused", "book", "req_0")[0]["state"] == "booked"
    assert balance(terminal) == "9.75"
    file.add(first)
    assert {row["request_id"]: row["state"] for row in terminal.json("refused", "list")}["req_0"] == "booked"
    result = terminal.run("refused", "book", "--all")
    assert result.exit_code == 1
    assert "booked: 2, still refused: 1" in result.stderr
    assert balance(terminal) == "9.5"
    assert [entry.request_id for entry in file.read()] == ["req_2"]
    terminal.ok("audit")


def test_unknown_request_and_no_request_are_refused(terminal: Terminal, file: RefusedFile) -> None:
    assert "req_9" in terminal.refused("refused", "book", "req_9")
    terminal.refused("refused", "book", status=2)
    terminal.refused("refused", "book", "--all", "req_0", status=2)
    assert len(file.read()) == 3


def test_list_without_a_file_is_empty(terminal: Terminal) -> None:
    assert terminal.json("refused", "list") == []

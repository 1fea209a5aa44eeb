"""One stored document that cannot be read costs itself and no other: each reader, each kind of damage.

The situation: bytes on a disk or in a store that are not UTF-8, nested too deeply, cut off, or of another form.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.admin import outbox
from gateway.admin.audit_trail import event_of
from gateway.history.call_pages import COLUMNS, call_of
from gateway.history.line_row import facts_of
from gateway.ledger import price_tables, refusal_counts
from gateway.ledger.archive import ArchiveError, read_archive
from gateway.ledger.entry import Entry
from gateway.ledger.journal import read_entries
from gateway.ledger.known_accounts import NAME, KnownAccounts
from gateway.ledger.refused import RefusedFile, RefusedFileError
from gateway.notifications.events import read_delivery
from gateway.notifications.queue import State
from gateway.routing import circuit_sync

DAMAGE: dict[str, bytes] = {
    "not UTF-8": b'{"id": "\xff", "version": "\xff"}',
    "nested too deeply": b'{"id": ' + b"[" * 100_000,
    "cut off": b'{"account": "acm',
    "of another form": b"[1, 2]",
    "nothing": b"",
}
READERS: dict[str, Callable[[bytes], Any]] = {
    "an event that waits for the audit trail": lambda text: outbox._decoded([b"e", text]),
    "a batch of refusals": lambda text: refusal_counts._decoded([b"b", text]),
    "a delivery": read_delivery,
    "a price table": price_tables._decode,
    "a circuit": lambda text: circuit_sync._decoded([text]) or None,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_damaged_document_in_the_store_is_left_out(reader: Callable[[bytes], Any], damage: bytes) -> None:
    assert reader(damage) is None


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_line_of_a_journal_is_skipped_and_the_next_is_read(tmp_path: Path, damage: bytes) -> None:
    folder = tmp_path / "good"
    folder.mkdir()
    entry = Entry("acme", "req_1", "key_1", "use", -5, 1, 7, "{}")
    RefusedFile(folder).add(entry)  # the form of a journal's lines
    (good,) = folder.iterdir()
    path = tmp_path / "journal"
    path.write_bytes(damage + b"\n" + good.read_bytes())
    assert [found.request_id for found in read_entries(path)] == ["req_1"]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_line_of_an_archive_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "archive"
    path.write_bytes(damage + b"\n")
    with pytest.raises(ArchiveError, match="line 1"):
        list(read_archive(path))


@pytest.mark.parametrize("damage", [text for text in DAMAGE.values() if text])
def test_damaged_line_of_the_refused_settlements_is_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "refused.jsonl").write_bytes(damage + b"\n")
    with pytest.raises(RefusedFileError, match="line 1"):
        RefusedFile(tmp_path).read()


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_number_of_accounts_counts_as_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / NAME).write_bytes(damage)
    assert KnownAccounts(tmp_path).read() == 0


@pytest.mark.parametrize("text", [b"", b"\xff", b"1", b"a b c d", b"1 2 x y", b"[1, 2]"])
def test_state_of_a_condition_that_cannot_be_read_counts_as_none(text: bytes) -> None:
    assert State.read(text) == State.read(None) == State()
    assert State.read(b"2 5 -7 a mark") == State(2, 5, -7, "a mark")


@pytest.mark.parametrize("text", [text.decode(errors="replace") for text in DAMAGE.values()])
def test_rows_of_the_database_with_a_damaged_document_are_shown(text: str) -> None:
    names = ("id", "actor_kind", "actor_id", "action", "object", "account", "address")
    row: Any = SimpleNamespace(_mapping={**dict.fromkeys(names, ""), "at": 1, "before": "{}", "after": text})
    event = event_of(row)
    assert (event.before, event.after) in [({}, {"unreadable": True}), ({}, {"id": "\ufffd", "version": "\ufffd"})]
    assert call_of(["" if name != "tags" else text for name in COLUMNS]).tags in ({}, event.after)
    facts_of(text)

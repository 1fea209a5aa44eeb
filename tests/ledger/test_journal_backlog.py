"""The backlog of a journal: what the store has not confirmed, and how old it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.ledger import Journal
from gateway.ledger import journal as journals
from gateway.ledger.entry import Entry
from gateway.ledger.journal import Backlog


def entry(number: int) -> Entry:
    return Entry("acme", f"req_{number}", "k", "use", -1, 0, 0, "{}")


class Clock:
    """The time of the journal."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(journals, "time", clock)
    return clock


def test_backlog_is_what_is_not_confirmed_and_as_old_as_its_first_entry(tmp_path: Path, clock: Clock) -> None:
    journal = Journal(tmp_path)
    assert journal.backlog == Backlog(0, 0, 0.0)
    numbers = []
    for number in range(4):
        numbers.append(journal.append([entry(number)]))
        clock.now += 5
    size = next(tmp_path.glob("*.jsonl")).stat().st_size
    assert journal.backlog == Backlog(4, size, 20.0)
    journal.confirm(numbers[0])
    journal.confirm(numbers[1])
    assert journal.backlog == Backlog(2, size, 10.0)
    journal.confirm(numbers[2])
    journal.confirm(numbers[3])
    assert journal.backlog == Backlog(0, 0, 0.0)
    journal.mark_unconfirmed()  # the store was replaced: all of it may be lost
    assert journal.backlog == Backlog(4, size, 20.0)
    journal.close()


def test_busy_journal_has_few_marks(tmp_path: Path, clock: Clock) -> None:
    journal = Journal(tmp_path)
    for number in range(2000):
        journal.confirm(journal.append([entry(number)]))
        clock.now += 0.01
    assert sum(len(segment.marks) for segment in journal._segments.values()) < 25
    journal.append([entry(9999)])
    assert journal.backlog.age <= 1.5
    journal.close()


def test_journal_of_a_dead_process_is_backlog_until_it_was_sent(tmp_path: Path) -> None:
    dead = Journal(tmp_path)
    dead.append([entry(1)])
    dead.close()
    heir = Journal(tmp_path)
    [(_, [path])] = heir.orphans()
    size = path.stat().st_size
    heir.take_over_file(path)
    assert (heir.backlog.records, heir.backlog.bytes) == (1, size)
    for segment in heir.rotate():
        heir.settle(segment)
    assert heir.backlog == Backlog(0, 0, 0.0)
    heir.close()

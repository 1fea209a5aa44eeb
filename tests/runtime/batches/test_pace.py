"""How soon lines of batches may begin."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.runtime.batches import pace
from gateway.runtime.batches.pace import BUSY_RATE, LOOK_EVERY, Pace, own_times


class Machine:
    """A clock, and the times of the process."""

    def __init__(self) -> None:
        self.now = 100.0
        self.times: tuple[int, int] | None = (0, 0)
        self.pace = Pace(lambda: self.times, lambda: self.now)

    def passes(self, *, ran: int, waited: int) -> None:
        assert self.times is not None
        self.times = self.times[0] + ran, self.times[1] + waited
        self.now += LOOK_EVERY


def test_lines_begin_at_once_while_the_process_has_a_processor() -> None:
    machine = Machine()
    assert [machine.pace.delay() for _ in range(100)] == [0.0] * 100
    machine.passes(ran=60, waited=40)
    assert [machine.pace.delay() for _ in range(100)] == [0.0] * 100


def test_few_lines_begin_in_a_second_while_the_process_waits_for_a_processor() -> None:
    machine = Machine()
    machine.passes(ran=10, waited=90)
    assert [machine.pace.delay() for _ in range(4)] == pytest.approx([number / BUSY_RATE for number in range(4)])
    machine.now += 1.0
    machine.times = (20, 180)
    assert machine.pace.delay() == 0.0
    machine.passes(ran=90, waited=10)
    assert [machine.pace.delay() for _ in range(4)] == [0.0] * 4


def test_system_that_does_not_say_it_has_no_pace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine()
    machine.passes(ran=10, waited=90)
    machine.times = None
    assert [machine.pace.delay() for _ in range(3)] == [0.0] * 3
    for text in (None, "", "1 2", "a b c"):
        if text is not None:
            (tmp_path / "schedstat").write_text(text)
        monkeypatch.setattr(pace, "SCHEDSTAT", tmp_path / "schedstat")
        assert own_times() is None


@pytest.mark.skipif(not pace.SCHEDSTAT.exists(), reason="the system has no schedstat")
def test_time_with_a_processor_is_read() -> None:
    before = own_times()
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    after = own_times()
    assert before is not None and after is not None
    assert after[0] - before[0] >= 10_000_000

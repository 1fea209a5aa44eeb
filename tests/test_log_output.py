"""A log that nobody reads blocks nobody: lines wait up to a bound, others are dropped and counted."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

import pytest

from gateway.log import OutputHandler
from gateway.log_output import MOST_WAITING, LogOutput
from tests.polling import until_blocking

LINE = b"x" * 1023 + b"\n"
MANY = 3 * MOST_WAITING // len(LINE)


def gap(dropped: int) -> bytes:
    return b"%d dropped\n" % dropped


def kept_and_told(lines: list[bytes]) -> tuple[int, int]:
    """How many lines arrived, and how many are missing as other lines say.

    Such a line comes early if the thread begins only when the others have been dropped for a while.
    """
    gaps = [int(line.split()[0]) for line in lines if line != LINE]
    assert {line for line in lines if line != LINE} == set(map(gap, gaps))
    return len(lines) - len(gaps), sum(gaps)


class Pipe:
    """A pipe that is read when the test says so."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.output = LogOutput(self.writer, gap_line=gap)

    def read(self) -> list[bytes]:
        """The lines up to now and those that wait."""
        received = b""
        os.set_blocking(self.reader, False)

        def drained() -> bool:
            nonlocal received
            try:
                while part := os.read(self.reader, 1 << 20):
                    received += part
            except BlockingIOError:
                pass
            return self.output.flush(within=0.01)

        until_blocking(drained)
        with contextlib.suppress(BlockingIOError):
            received += os.read(self.reader, 1 << 20)
        return received.splitlines(keepends=True)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.reader)
    os.close(pipe.writer)


def test_log_that_nobody_reads_takes_bounded_memory_and_blocks_nobody(pipe: Pipe) -> None:
    for _ in range(MANY):
        pipe.output.write(LINE)  # a write that waits would never return
    assert pipe.output.waiting <= MOST_WAITING
    assert not pipe.output.flush(within=0.01)
    lines = pipe.read()
    dropped = pipe.output.take_dropped()
    kept, told = kept_and_told(lines)
    assert (kept + dropped, dropped > told) == (MANY, True)
    assert pipe.output.take_dropped() == 0


def test_line_after_a_gap_says_how_many_lines_are_missing(pipe: Pipe) -> None:
    for _ in range(MANY):
        pipe.output.write(LINE)
    before = pipe.read()
    pipe.output.write(b"three lines\n" * 3, 3)
    pipe.output.write(b"and one\n")
    missing = MANY - sum(kept_and_told(before))
    assert pipe.read() == [gap(missing), *[b"three lines\n"] * 3, b"and one\n"]


def test_lines_of_a_batch_that_is_dropped_are_all_counted(pipe: Pipe) -> None:
    pipe.output.write(LINE * (MANY // 2), MANY // 2)
    assert pipe.output.take_dropped() == MANY // 2


def test_descriptor_that_another_process_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    for _ in range(500):
        pipe.output.write(LINE)
    assert len(pipe.read()) == 500
    assert pipe.output.take_dropped() == 0


def test_records_of_logging_reach_the_output_formatted(pipe: Pipe) -> None:
    handler = OutputHandler(pipe.output)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.handle(logging.LogRecord("x", logging.ERROR, "", 1, "%s \ud800", ("bad",), None))
    assert pipe.read() == [b"ERROR bad \\ud800\n"]

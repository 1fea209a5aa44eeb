"""A few cases of every fuzz target, and faults that the targets find. `tox -e fuzz` runs an hour of them."""

from __future__ import annotations

import random
import zlib

import pytest

from gateway.http_client.inflate import Inflater
from gateway.http_server.parser import RequestParser
from gateway.sse import EventParser
from gateway.uploads.form import FormReader
from tests.fuzz.engine import Report, run_case, search
from tests.fuzz.targets import TARGETS, new_target

CASES = 60


@pytest.mark.parametrize("name", TARGETS)
def test_cases_of_every_target_pass(name: str) -> None:
    target, generator = new_target(name), random.Random(1)
    try:
        report = Report(name)
        for _ in range(CASES):
            run_case(target, report, generator.randbytes(generator.randrange(400)))
        assert report.cases == CASES
    finally:
        target.close()


def lost_line_end(self: EventParser, chunk: bytes) -> bytes:
    return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def lost_tail(self: RequestParser, data: bytearray, start: int, stop: int) -> int:
    found = data.find(b"\r\n\r\n", start, stop)
    return stop if found < 0 else found + 4


def lost_end(self: FormReader) -> None:
    self._ended = self._parts % 2 == 0


def lost_rest(self: Inflater) -> bytes:
    if self._inflate is None:
        self._inflate = zlib.decompressobj(31 if "gzip" in self._coding else 15)
    waiting, self._waiting = self._waiting, b""
    try:
        return self._inflate.decompress(waiting, 1024)
    except zlib.error:
        return b""


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-10")
@pytest.mark.parametrize(
    ("name", "owner", "method", "fault"),
    [
        ("sse", EventParser, "_unify_line_ends", lost_line_end),
        ("http_parser", RequestParser, "_after_empty_line", lost_tail),
        ("multipart", FormReader, "on_part_end", lost_end),
        ("inflation", Inflater, "step", lost_rest),
    ],
)
def test_planted_fault_is_found_and_its_case_is_shown(
    name: str, owner: type, method: str, fault: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, fault)
    monkeypatch.setattr("tests.fuzz.engine.SMALLER", 0.2)
    target = new_target(name)
    try:
        with pytest.raises(AssertionError) as found:
            search(target, 20.0, seed=1)
    finally:
        target.close()
    assert f"{name}: " in found.value.__notes__[0]

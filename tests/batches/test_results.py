"""The log of results: a torn end is cut off, and settlements that may be in no journal are found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import Raw

from gateway.batches.lines import Line
from gateway.batches.results import Result, ResultLog
from gateway.ledger.entry import Entry
from gateway.runtime.batches.line_call import Attempt
from gateway.runtime.batches.result_lines import answered


def result(number: int, *, cost: int = 5) -> Result:
    """The result of a line."""
    entry = Entry("acme", f"req_{number}", "key_1", "use", -cost, 1, 1, "{}") if cost else None
    return Result(number, cost > 0, cost, entry, Raw(b'{"custom_id":"%d"}' % number))


def test_each_cut_of_a_log_keeps_the_whole_results_before_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, _ = ResultLog.open(path)
    ends = [0]
    for number in range(4):
        log.append(result(number))
        ends.append(log.size)
    log.close()
    content = path.read_bytes()
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        log, kept = ResultLog.open(path)
        whole = max(number for number, end in enumerate(ends) if end <= length)
        assert kept.numbers == set(range(whole))
        assert (kept.completed, kept.cost, log.size) == (whole, 5 * whole, ends[whole])
        log.append(result(9))
        log.close()
        assert [one.number for one in log.results()] == [*range(whole), 9]


@pytest.mark.parametrize("torn", [b"\0" * 100, b"\0" * 50 + b"\n", b"[1]\n", b"\xff\n", b"{}\n"])
def test_what_a_crash_of_the_machine_left_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    log, _ = ResultLog.open(tmp_path / "log")
    log.append(result(1))
    log.close()
    with (tmp_path / "log").open("ab") as file:
        file.write(torn)
    _, kept = ResultLog.open(tmp_path / "log")
    assert kept.numbers == {1}


def test_only_settlements_behind_the_mark_are_sent_again(tmp_path: Path) -> None:
    log, _ = ResultLog.open(tmp_path / "log")
    log.append(result(1))
    mark = log.size
    log.append(result(2, cost=0))
    log.append(result(3))
    log.close()
    _, kept = ResultLog.open(tmp_path / "log", settled=mark)
    assert [entry.request_id for entry in kept.entries] == ["req_3"]
    assert (kept.completed, kept.cost) == (2, 10)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"a": [1, 2]}', {"a": [1, 2]}),
        (b'{\n  "a": [\r\n1, "x\\ny"]\n}', {"a": [1, "x\ny"]}),
        (b"<html>\nno JSON\n", "<html>\nno JSON\n"),
        (b"\xff\n", "\ufffd\n"),
        (b"", ""),
    ],
)
def test_answer_of_any_form_is_one_line(body: bytes, shown: object) -> None:
    made = answered(Line(1, "a\nb", b"{}"), Attempt("req_1", 502, body))
    text = bytes(made.line)
    assert b"\n" not in text
    assert b"\r" not in text
    found = json.loads(text)
    assert (found["custom_id"], found["response"]["body"]) == ("a\nb", shown)

"""Logs: one line per request, and no credential in any of them."""

from __future__ import annotations

import io
import json
import logging
import os
import threading

import pytest

from gateway.log import MAX_SUBJECTS, AccessLine, AccessLog, WarningLimit, configure, redact
from gateway.log_output import LogOutput


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("key sk-abcDEF123_- refused", "abcDEF123_-"),
        ("Authorization: Bearer abc.def", "abc.def"),
        ("header Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ('{"api_key": "topsecret"}', "topsecret"),
        ("api-key=topsecret&x=1", "topsecret"),
        ("password: hunter2", "hunter2"),
    ],
)
def test_texts_that_look_like_credentials_are_hidden(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert "***" in redact(text)


def test_tracebacks_are_redacted_too() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure("info", stream=stream)
        try:
            raise ValueError("sk-in-a-traceback")
        except ValueError:
            logging.getLogger("gateway").exception("failed")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert "in-a-traceback" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


async def test_access_lines_are_json_written_in_batches() -> None:
    reader, writer = os.pipe()
    output = LogOutput(writer)
    log = AccessLog(output=output)
    for number in range(3):
        log.write(AccessLine(str(number), "GET", "/", 200, 1.5, detail="Bearer abc" if number else ""))
    log.flush()
    assert output.flush(within=60.0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        documents = [json.loads(line) for line in lines]
    assert [document["request_id"] for document in documents] == ["0", "1", "2"]
    assert documents[1]["detail"] == "Bearer ***"
    assert documents[0]["at"].endswith("Z")
    assert "tokens_in" not in documents[0]


async def test_a_log_pipe_without_a_reader_does_not_stop_the_gateway() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    output = LogOutput(writer)
    log = AccessLog(output=output)
    log.write(AccessLine("1", "GET", "/", 200, 1.0))
    log.flush()
    assert output.flush(within=60.0)
    os.close(writer)
    assert output.take_dropped() == 1


async def test_access_log_does_not_wait_for_a_reader_of_its_lines() -> None:
    reader, writer = os.pipe()
    log = AccessLog(output=LogOutput(writer))
    for number in range(1000):
        log.write(AccessLine(str(number), "GET", "/", 200, 1.5, detail="x" * 200))
    flushing = threading.Thread(target=log.flush, daemon=True)
    flushing.start()
    flushing.join(60.0)
    waits = flushing.is_alive()
    os.close(reader)  # the write fails, and the thread ends
    flushing.join()
    os.close(writer)
    assert not waits


def test_warning_is_due_once_per_subject_and_minute_with_the_number_of_its_events() -> None:
    limit = WarningLimit()
    assert [limit.due("a", now) for now in (0.0, 1.0, 59.0, 60.5, 61.0, 121.0)] == [1, 0, 0, 3, 0, 2]
    assert limit.due("b", 61.0) == 1


def test_warnings_about_many_subjects_take_bounded_memory() -> None:
    limit = WarningLimit()
    assert all(limit.due(number, 0.0) for number in range(3 * MAX_SUBJECTS))
    assert len(limit._subjects) <= MAX_SUBJECTS

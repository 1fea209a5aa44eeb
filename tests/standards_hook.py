"""Every answer that aiohttp reads in a test, against the standard of its dialect.

`watch()` begins before the first test. `faults()` gives what was found since it was called last. `Counts` is a plugin
of pytest: it prints at the end how many answers and events were read. The answers are those of one interpreter: each
process of the tests needs 2 s of CPU to load all classes.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from msgspec import Struct

from gateway.testing.standards.answers import (
    Reading,
    dialect_of,
    error_dialect_of,
    read_answer,
    read_error,
    read_message,
)

IS_ON = sys.version_info[:2] == (3, 11)
#: The packages of the classes, which tests of the classes load on each interpreter.
PACKAGES = frozenset({"anthropic", "google.genai", "openai"})
#: Answers that were read against a standard, and events of their streams, by dialect.
ANSWERS: Counter[str] = Counter()
EVENTS: Counter[str] = Counter()
_found: list[str] = []


class _Watched(Struct):
    """An answer that is being read."""

    content: aiohttp.StreamReader  # kept, so that its id is not given to another one
    path: str
    kind: str
    read: Callable[..., Reading | None]
    pieces: list[bytes] = []


_watched: dict[int, _Watched] = {}


class Counts:
    """Prints one line at the end of a run, for all of its processes."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A process of pytest-xdist has ended; one that crashed has no output."""
        answers, events = getattr(node, "workeroutput", {}).get("standards", ({}, {}))
        ANSWERS.update(answers)
        EVENTS.update(events)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the counts of a process of pytest-xdist to the one that prints."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["standards"] = (dict(ANSWERS), dict(EVENTS))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the line."""
        if ANSWERS:
            terminalreporter.write_line(summary())


def summary() -> str:
    """How many answers were read by each dialect's classes, and how many events."""
    parts = [f"{name} {count} ({EVENTS[name]})" for name, count in sorted(ANSWERS.items())]
    return f"answers (events) read by the classes of their standards: {', '.join(parts)}"


def watch() -> None:
    """Look at all answers from now on."""
    if not IS_ON:
        return
    start, take = aiohttp.ClientResponse.start, aiohttp.StreamReader._read_nowait_chunk
    receive = aiohttp.ClientWebSocketResponse.receive

    async def started(response: aiohttp.ClientResponse, *arguments: Any) -> aiohttp.ClientResponse:
        done = await start(response, *arguments)
        read, path = _reader(response.status, response.url.path), response.url.path
        if read is not None:
            kind = response.headers.get("Content-Type", "")
            _watched[id(response.content)] = _Watched(response.content, path, kind, read)
        return done

    def taken(content: aiohttp.StreamReader, most: int) -> bytes:
        piece = take(content, most)
        watched = _watched.get(id(content))
        if watched is not None:
            watched.pieces.append(piece)
            if content.at_eof():
                _end(_watched.pop(id(content)))
        return piece

    async def received(socket: aiohttp.ClientWebSocketResponse, *arguments: Any, **named: Any) -> aiohttp.WSMessage:
        message = await receive(socket, *arguments, **named)
        if message.type is aiohttp.WSMsgType.TEXT:
            path = socket._response.url.path
            _note(path, _without_collector(read_message, path, message.data.encode()), is_answer=False)
        return message

    _replace(aiohttp.ClientResponse, "start", started)
    _replace(aiohttp.StreamReader, "_read_nowait_chunk", taken)
    _replace(aiohttp.ClientWebSocketResponse, "receive", received)


def _reader(status: int, path: str) -> Callable[..., Reading | None] | None:
    """What reads an answer of this status at this path; None if it has no standard."""
    if status == 200:
        return read_answer if dialect_of(path) is not None else None
    return read_error if status >= 400 and error_dialect_of(path) is not None else None


def faults() -> list[str]:
    """What was wrong with the answers that were read since the last call."""
    for one in [*_watched.values()]:
        if one.kind.startswith("text/event-stream"):
            _end(one)  # it was left, or cut
    _watched.clear()
    found = [*_found]
    _found.clear()
    return found


def _end(watched: _Watched) -> None:
    reading = _without_collector(watched.read, watched.path, watched.kind, b"".join(watched.pieces))
    _note(watched.path, reading, is_answer=True)


def _note(path: str, reading: Reading | None, *, is_answer: bool) -> None:
    if reading is not None:
        ANSWERS[reading.dialect] += is_answer
        EVENTS[reading.dialect] += reading.events
        _found.extend(f"{path}: {text}" for text in reading.faults)


def _without_collector(read: Callable[..., Reading | None], *arguments: Any) -> Reading | None:
    """Read while the collector is paused: it takes a sixth of the time in which the classes are loaded."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return read(*arguments)
    finally:
        if was_enabled:
            gc.enable()


def _replace(kind: type, name: str, function: Callable[..., Any]) -> None:
    setattr(kind, name, function)

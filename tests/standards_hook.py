"""Every answer that aiohttp reads in a test, against the standard of its dialect.

`watch()` begins before the first test. `faults()` gives what was found since it was called last. The answers are those
of one interpreter: each process of the tests needs 2 s of CPU to load the classes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
from msgspec import Struct

from gateway.testing.standards.answers import dialect_of, faults_of

IS_ON = sys.version_info[:2] == (3, 11)
#: The packages of the classes.
PACKAGES = frozenset({"anthropic", "google.genai", "openai"}) if IS_ON else frozenset()
#: Answers that were read against a standard, by dialect.
READ: Counter[str] = Counter()
_found: list[str] = []


class _Watched(Struct):
    """An answer that is being read."""

    content: aiohttp.StreamReader  # kept, so that its id is not given to another one
    path: str
    kind: str
    pieces: list[bytes] = []


_watched: dict[int, _Watched] = {}


def watch() -> None:
    """Look at all answers from now on."""
    if not IS_ON:
        return
    start, take = aiohttp.ClientResponse.start, aiohttp.StreamReader._read_nowait_chunk

    async def started(response: aiohttp.ClientResponse, *arguments: Any) -> aiohttp.ClientResponse:
        done = await start(response, *arguments)
        if response.status == 200 and dialect_of(response.url.path) is not None:
            watched = _Watched(response.content, response.url.path, response.headers.get("Content-Type", ""))
            _watched[id(response.content)] = watched
        return done

    def taken(content: aiohttp.StreamReader, most: int) -> bytes:
        piece = take(content, most)
        watched = _watched.get(id(content))
        if watched is not None:
            watched.pieces.append(piece)
            if content.at_eof():
                _end(_watched.pop(id(content)))
        return piece

    _replace(aiohttp.ClientResponse, "start", started)
    _replace(aiohttp.StreamReader, "_read_nowait_chunk", taken)


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
    READ[str(dialect_of(watched.path))] += 1
    _found.extend(f"{watched.path}: {text}" for text in faults_of(watched.path, watched.kind, b"".join(watched.pieces)))


def _replace(kind: type, name: str, function: Callable[..., Any]) -> None:
    setattr(kind, name, function)

"""Which class of which standard an answer must be read by: by its path, its content type and its event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.sse import DONE_DATA, EventParser
from gateway.testing.standards import classes
from gateway.testing.standards.deviations import is_known
from gateway.testing.standards.responses import standard_part
from gateway.testing.standards.strict import faults

JSON, EVENTS = "application/json", "text/event-stream"
#: The dialect of a path, whatever stands before it.
PATHS = (
    (re.compile(r"/chat/completions$"), "chat"),
    (re.compile(r"/responses$"), "responses"),
    (re.compile(r"/messages$"), "messages"),
    (re.compile(r"/models/[^/]+:(?:streamG|g)enerateContent$"), "gemini"),
    (re.compile(r"/embeddings$"), "embeddings"),
)


def dialect_of(path: str) -> str | None:
    """The dialect that is spoken at a path; None for one without a standard."""
    path = path.partition("?")[0]
    return next((name for pattern, name in PATHS if pattern.search(path)), None)


def faults_of(path: str, content_type: str, body: bytes) -> list[str]:
    """What is wrong with an answer of status 200, each with its path; of a stream, with all events that are whole.

    An answer at another path, and one of another content type, has no faults.
    """
    dialect = dialect_of(path)
    if dialect is None:
        return []
    if content_type.startswith(EVENTS):
        found = [
            f"{name}: {text}" for name, kind, data in _events(dialect, body) for text in _faults(dialect, kind, data)
        ]
    elif content_type.startswith(JSON):
        found = _whole(dialect, body)
    else:
        return []
    return [text for text in found if not is_known(dialect, text)]


def _whole(dialect: str, body: bytes) -> list[str]:
    kind = classes.WHOLE[dialect]()
    if dialect == "gemini" and body.lstrip().startswith(b"["):  # a stream as one array
        return [
            text
            for one in msgspec.json.decode(body, type=list[msgspec.Raw])
            for text in _faults(dialect, kind, bytes(one))
        ]
    return _faults(dialect, kind, _standard(dialect, body) or b"")


def _faults(dialect: str, kind: Any, data: bytes) -> list[str]:
    return faults(kind, data, is_lax=dialect == "gemini")


def _standard(dialect: str, data: bytes) -> bytes | None:
    return standard_part(data) if dialect == "responses" else data


def _events(dialect: str, body: bytes) -> Iterator[tuple[str, Any, bytes]]:
    """Name, class and data of each event that has a class."""
    parser = EventParser()
    for number, event in enumerate(parser.feed(body)):
        if event.data == DONE_DATA:
            continue
        document = msgspec.json.decode(event.data)
        if dialect in ("chat", "gemini") and "error" in document:
            continue  # in the usual shape of errors, which has no class
        name = document.get("type") or event.name
        kind, data = classes.event_class(dialect, name), _standard(dialect, event.data)
        if kind is not None and data is not None:
            yield f"{number} {name}", kind, data

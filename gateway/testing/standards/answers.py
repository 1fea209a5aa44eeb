"""Which class of which standard an answer must be read by: by its path, its content type and its event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from gateway.sse import DONE_DATA, EventParser
from gateway.testing.standards import classes
from gateway.testing.standards.deviations import is_known
from gateway.testing.standards.responses import standard_part
from gateway.testing.standards.strict import faults

JSON, EVENTS = "application/json", "text/event-stream"
NOT_JSON = "it is no JSON object"
NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
#: The dialect of a path, whatever stands before it.
PATHS = (
    (re.compile(r"/chat/completions$"), "chat"),
    (re.compile(r"(?<!/chat)/completions$"), "completions"),
    (re.compile(r"/responses$"), "responses"),
    (re.compile(r"/responses/compact$"), "compactions"),
    (re.compile(r"/responses/input_tokens$"), "response tokens"),
    (re.compile(r"/messages$"), "messages"),
    (re.compile(r"/messages/count_tokens$"), "message tokens"),
    (re.compile(r"/models/[^/]+:(?:streamG|g)enerateContent$"), "gemini"),
    (re.compile(r"/models/[^/]+:countTokens$"), "gemini tokens"),
    (re.compile(r"/models/[^/]+:embedContent$"), "gemini vector"),
    (re.compile(r"/models/[^/]+:batchEmbedContents$"), "gemini vectors"),
    (re.compile(r"/embeddings$"), "embeddings"),
    (re.compile(r"/images/generations$"), "images"),
    (re.compile(r"/images/edits$"), "edits"),
    (re.compile(r"/moderations$"), "moderations"),
    (re.compile(r"/audio/speech$"), "speech"),
    (re.compile(r"/audio/transcriptions$"), "transcriptions"),
    (re.compile(r"/audio/translations$"), "translations"),
    (re.compile(r"(?<!/admin)/v1(?:beta)?/models$"), "models"),
    (re.compile(r"(?<!/admin)/v1(?:beta)?/models/[^:]+$"), "model"),
)
#: The form of errors at a path, also where nothing else is.
ERROR_PATHS = (
    (re.compile(r"/messages(?:/|$)"), classes.ANTHROPIC_ERRORS),
    (re.compile(r"/v1beta(?:/|$)|/models/.+:[A-Za-z]+$"), classes.GOOGLE_ERRORS),
    (re.compile(r"(?<!/admin)/v1/models(?:/|$)"), "errors of models"),
    (re.compile(r"(?<!/admin)/v1(?:/|$)"), classes.OPENAI_ERRORS),
)
#: The form of an error in a stream of a dialect that has no event for it.
_BARE_ERRORS = {
    **dict.fromkeys(("chat", "completions", "speech", "transcriptions"), classes.OPENAI_ERRORS),
    "gemini": classes.GOOGLE_ERRORS,
}


class Reading(Struct, frozen=True):
    """What was read of one answer. `events` of a stream or socket; 0 for a whole answer."""

    dialect: str
    events: int
    faults: list[str]


def dialect_of(path: str) -> str | None:
    """The dialect that is spoken at a path; None for one without a standard."""
    path = path.partition("?")[0]
    return next((name for pattern, name in PATHS if pattern.search(path)), None)


def error_dialect_of(path: str) -> str | None:
    """The form in which a path tells an error; None for a path without a standard."""
    path = path.partition("?")[0]
    return next((name for pattern, name in ERROR_PATHS if pattern.search(path)), None)


def faults_of(path: str, content_type: str, body: bytes) -> list[str]:
    """What is wrong with an answer of status 200, each with its path; of a stream, with all events that are whole.

    An answer at another path, and one of another content type, has no faults.
    """
    reading = read_answer(path, content_type, body)
    return reading.faults if reading is not None else []


def read_answer(path: str, content_type: str, body: bytes) -> Reading | None:
    """The same with what was read; None for an answer without a standard."""
    dialect = dialect_of(path)
    if dialect is None or not content_type.startswith((JSON, EVENTS)):
        return None
    if content_type.startswith(JSON):
        return _reading(dialect, 0, _whole(dialect, body))
    events = list(_events(dialect, body))
    return _reading(dialect, len(events), [text for found in events for text in found])


def read_error(path: str, content_type: str, body: bytes) -> Reading | None:
    """The same for a whole answer of status 400 or above."""
    dialect = error_dialect_of(path)
    if dialect is None or not content_type.startswith(JSON):
        return None
    return _reading(dialect, 0, _whole(dialect, body))


def read_message(path: str, message: bytes) -> Reading | None:
    """The same for one message of a WebSocket; None where no standard has one."""
    if dialect_of(path) != "responses":
        return None
    try:
        document = msgspec.json.decode(message, type=dict[str, Any])
    except NO_JSON:
        return _reading("responses", 1, [NOT_JSON])
    name = str(document.get("type"))
    if name == "error" and "status" in document:
        found = faults(classes.class_of_socket_error(), message)
    else:
        found = _event("responses", name, document, message) or []
    return _reading("responses", 1, [f"{name}: {text}" for text in found])


def _reading(dialect: str, events: int, found: list[str]) -> Reading:
    return Reading(dialect, events, [text for text in found if not is_known(dialect, text)])


def _whole(dialect: str, body: bytes) -> list[str]:
    if dialect == "gemini" and body.lstrip().startswith(b"["):  # a stream as one array
        parts = msgspec.json.decode(body, type=list[msgspec.Raw])
        return [text for one in parts for text in _whole(dialect, bytes(one))]
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
    except NO_JSON:
        return [NOT_JSON]
    if dialect == "gemini" and "error" in document:  # one of that array
        dialect = classes.GOOGLE_ERRORS
    kind = classes.class_of_whole(dialect, document)
    return [] if kind is None else _faults(dialect, kind, _standard(dialect, document, body) or b"")


def _faults(dialect: str, kind: Any, data: bytes) -> list[str]:
    return faults(kind, data, is_lax=dialect == "gemini")


def _standard(dialect: str, document: dict[str, Any], data: bytes) -> bytes | None:
    return standard_part(document) if dialect == "responses" else data


def _events(dialect: str, body: bytes) -> Iterator[list[str]]:
    """The faults of each event that has a class."""
    for number, event in enumerate(EventParser().feed(body)):
        if event.data == DONE_DATA:
            continue
        try:
            document = msgspec.json.decode(event.data, type=dict[str, Any])
        except NO_JSON:
            yield [f"{number}: {NOT_JSON}"]
            continue
        if dialect in _BARE_ERRORS and "error" in document:
            yield [f"{number} {text}" for text in faults(_error_class(dialect), event.data)]
            continue
        name = str(document.get("type") or event.name)
        found = _event(dialect, name, document, event.data)
        if found is not None:
            yield [f"{number} {name}: {text}" for text in found]


def _error_class(dialect: str) -> Any:
    return classes.class_of_whole(_BARE_ERRORS[dialect], {})


def _event(dialect: str, name: str, document: dict[str, Any], data: bytes) -> list[str] | None:
    """The faults of an event; None for one without a class."""
    kind = classes.class_of_event(dialect, name)
    standard = _standard(dialect, document, data) if kind is not None else None
    return _faults(dialect, kind, standard) if standard is not None else None

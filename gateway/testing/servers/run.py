"""Goes through the situations, one after the other, and says of each whether it holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from gateway.sse import DONE_DATA, EventParser
from gateway.testing.servers.answers import Answer, missed, read_whole
from gateway.testing.servers.client import Connection, Received, Server, Unreachable, Unusable, filled
from gateway.testing.servers.situations import CALL, ID, LIMIT, MODEL, OUTPUT, Body, Situation, Step
from gateway.testing.servers.streams import StreamFault, read_stream
from gateway.testing.standards import Reading, read_answer, read_message
from gateway.testing.standards.answers import NO_JSON, dialect_of

MOST = 10  # faults that are kept of one situation
LONGEST = 300  # characters of one
#: What reading raises for a document that has not the members and types of its standard.
UNREADABLE = (*NO_JSON, LookupError, TypeError, ValueError, AttributeError)


class Outcome(Struct, frozen=True):
    """What came of one situation; it holds without faults. `seconds`: until its answers had come."""

    api: str
    situation: str
    faults: list[str] = field(default_factory=list)
    answers: int = 0
    events: int = 0
    seconds: float = 0.0


async def check_server(
    server: Server, situations: Sequence[Situation], tell: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """The outcome of each situation, also given to `tell` as soon as it is known.

    Raises Unreachable if there is no server, or if it refuses the key of the first request.
    """
    found: list[Outcome] = []
    for situation in situations:
        async with Connection(server, situation.api) as connection:
            found.append(await _outcome(server, connection, situation, is_first=not found))
        tell(found[-1])
    return found


async def _outcome(server: Server, connection: Connection, situation: Situation, *, is_first: bool) -> Outcome:
    values: dict[str, Any] = {MODEL: server.model, LIMIT: server.limit, ID: "", CALL: "", OUTPUT: []}
    answers = events = 0
    seconds = 0.0
    faults: list[str] = []
    for number, step in enumerate(situation.steps, 1):
        try:
            step = msgspec.structs.replace(step, body=filled(step.body, values))
            begun = time.monotonic()
            try:
                received = await connection.send(step)
            finally:
                seconds += time.monotonic() - begun
            if received.status == 401 and is_first:
                raise Unreachable(f"{server.base_url} refuses the key")
            found, answer, reading = judged(situation.api, step, received)
        except Unusable as error:
            found, answer, reading = [str(error)], None, None
        if reading is not None:
            answers, events = answers + 1, events + reading.events
        several = f"request {number}: " if len(situation.steps) > 1 else ""
        faults += [_line(several + text) for text in found]
        if answer is None:
            break
        values |= {ID: answer.id or values[ID], CALL: answer.call_id, OUTPUT: answer.output}
    return Outcome(situation.api, situation.name, faults[:MOST], answers, events, round(seconds, 3))


def judged(api: str, step: Step, received: Received) -> tuple[list[str], Answer | None, Reading | None]:
    """What is wrong with an answer, what it says if the next request may need it, and what was read of it."""
    if received.messages:
        return _judged_messages(step, received.messages)
    if step.wants == "refusal":
        return _refusal(api, received), Answer(), None
    if received.status != 200:
        return [f"status {received.status}{_message(received.body)}"], None, None
    path = f"/v1{step.path.replace(MODEL, 'model')}"
    reading = read_answer(path, received.kind, received.body)
    if reading is None or (reading.events == 0) is step.streamed:
        return [f"the content type is {received.kind[:80]!r}"], None, None
    try:
        answer, faults = _read(str(dialect_of(path)), step, received.body)
    except StreamFault as error:
        return [*reading.faults, str(error)], None, reading
    except UNREADABLE:  # its faults have been found already
        return reading.faults or ["the answer cannot be read"], None, reading
    return [*reading.faults, *faults, *missed(step, answer)], answer, reading


def _read(dialect: str, step: Step, body: bytes) -> tuple[Answer, list[str]]:
    if not step.streamed:
        return read_whole(dialect, msgspec.json.decode(body)), []
    data = [event.data for event in EventParser().feed(body)]
    events = [msgspec.json.decode(one) for one in data if one != DONE_DATA]
    return read_stream(dialect, events, has_done=DONE_DATA in data[-1:])


def _judged_messages(step: Step, messages: list[bytes]) -> tuple[list[str], Answer | None, Reading | None]:
    readings = [read_message(f"/v1{step.path}", message) for message in messages]
    faults = [fault for one in readings if one is not None for fault in one.faults]
    reading = Reading("responses", len(messages), faults)
    documents = [msgspec.json.decode(message) for message in messages]  # the client has read them
    last = documents[-1]
    if step.wants == "refusal":
        code = _code(last)
        wrong = [] if code == "previous_response_not_found" else [f"the error has the code {code!r:.80}"]
        return [*faults, *wrong], Answer(), reading
    if last["type"] == "error":
        return [*faults, f"an error instead of a response{_message(messages[-1])}"], None, reading
    try:
        answer, wrong = read_stream("responses", documents)
    except StreamFault as error:
        return [*faults, str(error)], None, reading
    except UNREADABLE:
        return faults or ["the events cannot be read"], None, reading
    return [*faults, *wrong, *missed(step, answer)], answer, reading


def _code(event: Body) -> Any:
    error = event.get("error")
    return error.get("code") if isinstance(error, dict) else None


def _refusal(api: str, received: Received) -> list[str]:
    """What is wrong with a refusal: its status, and the form of its error."""
    if not 400 <= received.status < 500 or received.status in (401, 403, 404, 405):
        return [f"status {received.status} instead of a refusal of the request"]
    try:
        document: Body = msgspec.json.decode(received.body)
        error = document["error"]
        wanted = {"gemini": {"code": int, "message": str, "status": str}}.get(api, {"type": str, "message": str})
        faults = [f"error.{name}: wrong type" for name, kind in wanted.items() if not isinstance(error.get(name), kind)]
        if api == "messages" and document.get("type") != "error":
            faults.append("type: it is not 'error'")
    except UNREADABLE:
        return ["the refusal has no error in the form of the API"]
    return faults


def _message(body: bytes) -> str:
    """The server's words about an error, after a colon; nothing if it has none."""
    try:
        error = msgspec.json.decode(body)["error"]
        return f": {error['message']}"
    except UNREADABLE:
        return ""


def _line(text: str) -> str:
    """One line that a terminal can show: the server chooses a part of the text."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)[:LONGEST]

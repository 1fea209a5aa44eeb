"""What a provider of realtime sessions must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from gateway.billing.realtime_usage import response_usage
from gateway.errors import UpstreamError
from gateway.plugins.provider import Realtime, Target
from gateway.plugins.realtime_session import RealtimeSession
from gateway.schemas.realtime.request import RealtimeRequest
from gateway.schemas.realtime.server_events import (
    AUDIO,
    CREATED,
    DONE,
    TEXT,
    read_server_event,
    response_of,
)
from gateway.testing import whole_call_cases
from gateway.testing.subject import Case, Subject

SAYS_WITHIN = 10.0  # seconds until the next event of a session
MOST_EVENTS = 10_000  # of one response
TEXT_OF_USER = "Say grey herons"

_encode = msgspec.json.Encoder().encode


async def realtime_session_begins(subject: Subject) -> None:
    """The first event is `session.created`."""
    async with _opened(subject) as session:
        kind = read_server_event(await _next(session)).type
        assert kind == "session.created", f"the first event is {kind!r}"


async def realtime_response_is_whole(subject: Subject) -> None:
    """A response begins, says something, and ends; its parts and its end name it."""
    async with _opened(subject) as session:
        await _ask(session)
        name, usage, said = await _response(session)
        assert said, f"response {name} said nothing"
        if response_usage(usage) is None:
            subject.notes.append(whole_call_cases.NO_USAGE)


async def realtime_responses_follow_each_other(subject: Subject) -> None:
    """Each response of a session has an id of its own."""
    async with _opened(subject) as session:
        names = []
        for _ in range(3):
            await _ask(session)
            names.append((await _response(session))[0])
        assert len(set(names)) == 3, f"responses share an id: {names}"


async def realtime_sessions_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many sessions; each gets its own events."""

    async def once(number: int) -> int:
        async with _opened(subject) as session:
            await _ask(session, "heron " * number)
            return (await _response(session))[2]

    numbers = range(1, 6)  # a number in the case
    said = await asyncio.gather(*(once(number) for number in numbers))
    assert all(said), "a session got no answer beside others"


async def realtime_receiver_that_is_cancelled_loses_nothing(subject: Subject) -> None:
    """`receive` may be cancelled while it waits; the next one gets the next event."""
    async with _opened(subject) as session:
        await _next(session)
        waiting: asyncio.Future[object] = asyncio.ensure_future(session.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        whole_call_cases.assert_was_cancelled(waiting)
        await _ask(session)
        assert (await _response(session))[2], "the events of a response were lost"


async def realtime_session_that_is_closed_has_ended(subject: Subject) -> None:
    """After `close` nothing is sent and nothing arrives; it may be called again."""
    async with _opened(subject) as session:
        await _next(session)
        session.close()
        session.close()
        await asyncio.sleep(0.05)
        error = await whole_call_cases.error_of(_next(session), "receive after close")
        assert isinstance(error, UpstreamError), f"receive after close gave {type(error).__name__}"
        sending = asyncio.wait_for(session.send(_encode({"type": "response.cancel"})), SAYS_WITHIN)
        error = await whole_call_cases.error_of(sending, "send after close")
        assert isinstance(error, UpstreamError), f"send after close gave {type(error).__name__}"


async def realtime_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request."""
    request = RealtimeRequest(model="public-name")

    async def call() -> None:
        session = await _provider(subject).open_realtime(request, subject.target)
        session.close()

    await whole_call_cases.assert_unchanged(request, call())


@asynccontextmanager
async def _opened(subject: Subject) -> AsyncIterator[RealtimeSession]:
    session = await _provider(subject).open_realtime(RealtimeRequest(model="public-name"), subject.target)
    assert isinstance(session, RealtimeSession), f"opened {session!r} instead of a RealtimeSession"
    try:
        yield session
    finally:
        session.close()


async def _next(session: RealtimeSession) -> bytes:
    event = await asyncio.wait_for(session.receive(), SAYS_WITHIN)
    assert isinstance(event, bytes), f"an event is bytes, not {type(event).__name__}"
    return event


async def _ask(session: RealtimeSession, text: str = TEXT_OF_USER) -> None:
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    await session.send(_encode({"type": "conversation.item.create", "item": item}))
    await session.send(_encode({"type": "response.create"}))


async def _response(session: RealtimeSession) -> tuple[str, Any, int]:
    """The id, the usage and the number of parts of the next response."""
    name, said = "", 0
    for _ in range(MOST_EVENTS):
        event = await _next(session)
        found = read_server_event(event)
        if found.type == CREATED:
            name = response_of(event).id
            assert name, "a response has no id"
        elif found.type in AUDIO or found.type in TEXT:
            assert found.response_id == name, f"a part names the response {found.response_id!r}, not {name!r}"
            said += 1
        elif found.type == DONE:
            response = response_of(event)
            assert response.id == name, f"the end names the response {response.id!r}, not {name!r}"
            return name, response.usage, said
    raise AssertionError("a response does not end")


def _provider(subject: Subject) -> Realtime:
    return cast("Realtime", subject.provider)


async def _call(subject: Subject, target: Target) -> object:
    session = await _provider(subject).open_realtime(RealtimeRequest(model="public-name"), target)
    session.close()
    return session


CASES: tuple[Case, ...] = (
    realtime_session_begins,
    realtime_response_is_whole,
    realtime_responses_follow_each_other,
    realtime_sessions_at_once_do_not_mix,
    realtime_receiver_that_is_cancelled_loses_nothing,
    realtime_session_that_is_closed_has_ended,
    realtime_request_is_left_as_it_was,
    *whole_call_cases.local_cases("realtime", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = whole_call_cases.upstream_cases("realtime", _call)

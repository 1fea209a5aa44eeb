"""What a chat provider must make of an upstream that refuses, lies, stalls or breaks off.

The cases bend whatever the `FakeUpstream` would have answered, so they hold for every dialect: frames are cut, split,
delayed, replaced. Sharp edge: errors come in OpenAI's body shape whatever the dialect, because real proxies in front of
every vendor do that too; the status must suffice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import cast

import msgspec

from gateway.errors import (
    GatewayError,
    RequestTooLarge,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.http_client.timeouts import Timeouts
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_response import ChatChunk
from gateway.testing.chat_cases import question
from gateway.testing.fake_upstream import Reply
from gateway.testing.subject import Case, Subject, assert_sound_stream, assert_upstream_error

CLOSED_WITHIN = 0.25  # seconds from leaving a call to the upstream's seeing it

BY_STATUS: tuple[tuple[int, type[GatewayError]], ...] = (
    (400, UpstreamRejected),
    (401, UpstreamAuthError),
    (403, UpstreamAuthError),
    (404, UpstreamError),
    (408, UpstreamTimeout),
    (409, UpstreamError),
    (413, RequestTooLarge),
    (422, UpstreamRejected),
    (429, UpstreamRateLimited),
    (500, UpstreamError),
    (502, UpstreamError),
    (503, UpstreamError),
    (504, UpstreamTimeout),
    (529, UpstreamOverloaded),
)


async def error_of(call: Awaitable[object], what: str) -> BaseException:
    """What the call raised; it must have."""
    try:
        answer = await call
    except Exception as error:
        # The kit judges whatever a third party's code raises.
        return error
    raise AssertionError(f"{what} gave an answer instead of an error: {answer!r}")


def _calls(subject: Subject) -> tuple[tuple[str, Callable[[], Awaitable[object]]], ...]:
    return (
        ("chat", lambda: subject.chat.chat(question(), subject.target)),
        ("stream_chat", lambda: subject.stream(question())),
    )


async def statuses_become_typed_errors(subject: Subject) -> None:
    """Each status gives the class that says whether another target may be tried, and shows no secret."""
    leak = f"refused {' '.join(subject.secrets)} at {subject.fake.url}/internal"
    for status, kind in BY_STATUS:
        for name, call in _calls(subject):
            subject.fake.enqueue(Reply.error(status, leak, headers={"Retry-After": "7"}))
            error = await error_of(call(), f"{name} with status {status}")
            assert_upstream_error(error, subject.secrets)
            assert isinstance(error, kind), f"{name}: status {status} gave {type(error).__name__}, not {kind.__name__}"
            if status == 429:
                assert error.retry_after == 7, f"{name}: Retry-After was not honoured"


async def broken_error_bodies_do_no_harm(subject: Subject) -> None:
    """An error's body may be anything."""
    for body in (b"", b"<html>busy</html>", b'"text"', b"[]", b'{"error":[[]]}', b"\xff\xfe", b"[" * 5000):
        for name, call in _calls(subject):
            subject.fake.enqueue(Reply(status=500, body=body))
            error = await error_of(call(), f"{name} with body {body[:20]!r}")
            assert_upstream_error(error, subject.secrets)
            assert isinstance(error, UpstreamError), f"{name}: body {body[:20]!r} gave {type(error).__name__}"


async def hang_up_is_unreachable(subject: Subject) -> None:
    """A connection that closes without an answer may be tried elsewhere."""
    for name, call in _calls(subject):
        subject.fake.enqueue(Reply.hang_up())
        error = await error_of(call(), f"{name} without an answer")
        assert isinstance(error, UpstreamUnreachable), f"{name}: gave {type(error).__name__}, not UpstreamUnreachable"
        assert_upstream_error(error, subject.secrets)


async def nonsense_is_an_invalid_response(subject: Subject) -> None:
    """An answer that is not the dialect's is an error, never an empty answer."""
    for body in (b"<html>hello</html>", b"{", b"null", b"[]", b"{}"):
        for name, call in _calls(subject):
            subject.fake.enqueue(Reply(body=body, headers={"Content-Type": "application/json"}))
            error = await error_of(call(), f"{name} with body {body!r}")
            assert_upstream_error(error, subject.secrets)
            if name == "chat":
                kind = type(error).__name__
                assert isinstance(error, UpstreamInvalidResponse), f"body {body!r} gave {kind}"


async def cut_answer_is_an_error(subject: Subject) -> None:
    """Half a document is no answer."""

    def halve(reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, cut_after=len(reply.body) // 2)

    subject.fake.tamper = halve
    error = await error_of(subject.chat.chat(question(), subject.target), "half a document")
    assert_upstream_error(error, subject.secrets)


async def cut_stream_never_looks_whole(subject: Subject) -> None:
    """A stream that ends before its end, cleanly or not, raises or leaves a choice without its finish."""
    for end in ("cut", "whole"):
        for share in (0.0, 0.3, 0.6):

            def shorten(reply: Reply, end: str = end, share: float = share) -> Reply:
                frames = reply.frames or []
                return msgspec.structs.replace(reply, frames=frames[: int(len(frames) * share)], end=end)

            subject.fake.tamper = shorten
            call = fold_chat(subject.chat.stream_chat(question(), subject.target))
            error = await error_of(call, f"{share:.0%} of a stream, end {end!r},")
            assert_upstream_error(error, subject.secrets)


async def frames_may_be_split_anywhere(subject: Subject) -> None:
    """Frames do not arrive as they were written."""

    def shred(reply: Reply) -> Reply:
        body = b"".join(reply.frames or [])
        pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
        return msgspec.structs.replace(reply, frames=pieces)

    subject.fake.tamper = shred
    assert_sound_stream(await subject.stream(question()))


async def silence_times_out(subject: Subject) -> None:
    """No headers in time, and no further chunk in time."""
    target = msgspec.structs.replace(subject.target, timeouts=Timeouts(connect=2, first_byte=0.2, idle=0.2))
    subject.fake.enqueue(Reply.silence())
    error = await error_of(subject.stream(question(), target=target), "a silent upstream")
    assert isinstance(error, UpstreamTimeout), f"silence before the headers gave {type(error).__name__}"
    subject.fake.tamper = _stall
    error = await error_of(subject.stream(question(), target=target), "a stalled stream")
    assert isinstance(error, UpstreamTimeout), f"silence within a stream gave {type(error).__name__}"
    assert_upstream_error(error, subject.secrets)


async def leaving_closes_the_upstream(subject: Subject) -> None:
    """Whoever leaves a stream leaves the upstream, which would go on generating, and charging."""
    subject.fake.tamper = _stall
    stream = cast("AsyncGenerator[ChatChunk, None]", subject.chat.stream_chat(question(), subject.target))
    await anext(stream)
    await assert_left(subject, stream.aclose)


async def cancelling_closes_the_upstream(subject: Subject) -> None:
    """The same for a cancelled task, whether it waits for headers or for a chunk."""
    for reply in (Reply.silence(), None):
        if reply is None:
            subject.fake.tamper = _stall
        else:
            subject.fake.enqueue(reply)
        before = len(subject.fake.seen)
        task = asyncio.ensure_future(subject.stream(question()))
        await subject.fake.wait_started(before, frames=2 if reply is None else 0)

        async def cancel(task: asyncio.Future[list[ChatChunk]] = task) -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        await assert_left(subject, cancel)


def _stall(reply: Reply) -> Reply:
    frames = reply.frames or []
    return msgspec.structs.replace(reply, frames=frames[: max(2, len(frames) // 2)], end="silence")


async def assert_left(subject: Subject, leave: Callable[[], Awaitable[None]]) -> None:
    """Leaving the call closes the upstream at once."""
    started = time.monotonic()
    await leave()
    seen = await subject.fake.wait_ended(within=2.0)
    took = seen.ended - started
    assert seen.outcome == "left", f"the upstream's answer ended as {seen.outcome!r}"
    assert took <= CLOSED_WITHIN, f"the upstream saw the end {took:.3f} s after the caller had left"


CASES: tuple[Case, ...] = (
    statuses_become_typed_errors,
    broken_error_bodies_do_no_harm,
    hang_up_is_unreachable,
    nonsense_is_an_invalid_response,
    cut_answer_is_an_error,
    cut_stream_never_looks_whole,
    frames_may_be_split_anywhere,
    silence_times_out,
    leaving_closes_the_upstream,
    cancelling_closes_the_upstream,
)

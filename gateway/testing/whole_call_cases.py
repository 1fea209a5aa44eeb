"""What every provider must do about a call, whichever endpoint it serves; and what the cases of all endpoints share.

`local_cases(name, call)` and `upstream_cases(name, …)` make the cases of one endpoint out of its plain calls: typed
errors for each status, no secret and no address in any of them, prompt cancellation. Sharp edge: errors come in
OpenAI's body shape whatever the dialect, because real proxies in front of every vendor do that too; the status must
suffice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal

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
from gateway.plugins.provider import Target
from gateway.schemas.request_fields import RequestFields
from gateway.testing.reply import Reply
from gateway.testing.subject import Case, Subject, assert_upstream_error

CLOSED_WITHIN = 0.25  # seconds from leaving a call to the upstream's seeing it
PROMPT_END = 1.0  # seconds that leaving or cancelling a call may take
Call = Callable[[Subject, Target], Coroutine[Any, Any, object]]

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


def local_cases(name: str, call: Call) -> tuple[Case, ...]:
    """What holds without an upstream."""

    async def cancellation_is_obeyed(subject: Subject) -> None:
        task = asyncio.ensure_future(call(subject, subject.target))
        await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=PROMPT_END)
        assert done, f"the call went on for {PROMPT_END} s after it was cancelled"
        with contextlib.suppress(asyncio.CancelledError):
            task.result()

    async def secrets_stay_hidden(subject: Subject) -> None:
        shown = f"{subject.options!r} {subject.provider!r} {subject.provider!s}"
        assert not any(secret in shown for secret in subject.secrets), "a repr shows a secret"

    return _named(name, cancellation_is_obeyed, secrets_stay_hidden)


def upstream_cases(name: str, call: Call, *, stream: Call | None = None) -> tuple[Case, ...]:
    """What must become of an upstream that refuses, lies, stalls or breaks off; `stream` is another call to check."""
    calls = {"the call": call, **({"the stream": stream} if stream else {})}

    async def statuses_become_typed_errors(subject: Subject) -> None:
        leak = f"refused {' '.join(subject.secrets)} at {subject.fake.url}/internal"
        for status, kind in BY_STATUS:
            for which, one in calls.items():
                subject.fake.enqueue(Reply.error(status, leak, headers={"Retry-After": "7"}))
                error = await error_of(one(subject, subject.target), f"{which} with status {status}")
                assert_upstream_error(error, subject.secrets)
                assert isinstance(error, kind), f"{which}: status {status} gave {type(error).__name__}, not {kind}"
                assert status != 429 or error.retry_after == 7, f"{which}: Retry-After was not honoured"

    async def broken_error_bodies_do_no_harm(subject: Subject) -> None:
        for body in (b"", b"<html>busy</html>", b'"text"', b"[]", b'{"error":[[]]}', b"\xff\xfe", b"[" * 5000):
            for which, one in calls.items():
                subject.fake.enqueue(Reply(status=500, body=body))
                error = await error_of(one(subject, subject.target), f"{which} with body {body[:20]!r}")
                assert_upstream_error(error, subject.secrets)
                assert isinstance(error, UpstreamError), f"{which}: body {body[:20]!r} gave {type(error).__name__}"

    async def hang_up_is_unreachable(subject: Subject) -> None:
        for which, one in calls.items():
            subject.fake.enqueue(Reply.hang_up())
            error = await error_of(one(subject, subject.target), f"{which} without an answer")
            assert isinstance(error, UpstreamUnreachable), f"{which}: a closed connection gave {type(error).__name__}"
            assert_upstream_error(error, subject.secrets)

    async def nonsense_is_an_invalid_response(subject: Subject) -> None:
        for body in (b"<html>hello</html>", b"{", b"null", b"[]", b"{}"):
            for which, one in calls.items():
                subject.fake.enqueue(Reply(body=body, headers={"Content-Type": "application/json"}))
                error = await error_of(one(subject, subject.target), f"{which} with body {body!r}")
                assert_upstream_error(error, subject.secrets)
                invalid = one is not call or isinstance(error, UpstreamInvalidResponse)
                assert invalid, f"body {body!r} gave {type(error).__name__}"

    async def cut_answer_is_an_error(subject: Subject) -> None:
        subject.fake.tamper = _halve
        error = await error_of(call(subject, subject.target), "half a document")
        assert_upstream_error(error, subject.secrets)

    async def silence_times_out(subject: Subject) -> None:
        for which, one in calls.items():
            subject.fake.enqueue(Reply.silence())
            error = await error_of(one(subject, impatient(subject)), f"{which} of a silent upstream")
            assert isinstance(error, UpstreamTimeout), f"{which}: silence gave {type(error).__name__}"

    async def cancelling_closes_the_upstream(subject: Subject) -> None:
        for one in calls.values():
            subject.fake.enqueue(Reply.silence())
            await assert_cancelled(subject, one(subject, subject.target))

    return _named(
        name,
        statuses_become_typed_errors,
        broken_error_bodies_do_no_harm,
        hang_up_is_unreachable,
        nonsense_is_an_invalid_response,
        cut_answer_is_an_error,
        silence_times_out,
        cancelling_closes_the_upstream,
    )


# What cases share ----------------------------------------------------------------------------------------------------


async def error_of(call: Awaitable[object], what: str) -> BaseException:
    """What the call raised; it must have."""
    try:
        answer = await call
    except Exception as error:
        # The kit judges whatever a third party's code raises.
        return error
    raise AssertionError(f"{what} gave an answer instead of an error: {answer!r}")


async def assert_unchanged(request: RequestFields, call: Awaitable[object], *names: str) -> None:
    """The call leaves the request as it was, since another attempt may use it; `names` are attributes to compare."""

    def state() -> tuple[object, ...]:
        return dict(request.fields), *(msgspec.json.encode(getattr(request, name)) for name in ("model", *names))

    before = state()
    await call
    assert before == state(), "the provider changed the request"


async def assert_closes_promptly(stream: AsyncIterator[object], what: str) -> None:
    """A stream that is closed after its first item ends at once."""
    await anext(stream)
    try:
        await asyncio.wait_for(stream.aclose(), PROMPT_END)  # type: ignore[attr-defined]  # a generator, or like one
    except TimeoutError:
        raise AssertionError(f"closing the {what} took over {PROMPT_END} s") from None


async def assert_left(subject: Subject, leave: Callable[[], Awaitable[None]]) -> None:
    """Leaving the call closes the upstream at once."""
    started = time.monotonic()
    await leave()
    seen = await subject.fake.wait_ended(within=2.0)
    took = seen.ended - started
    assert seen.outcome == "left", f"the upstream's answer ended as {seen.outcome!r}"
    assert took <= CLOSED_WITHIN, f"the upstream saw the end {took:.3f} s after the caller had left"


async def assert_stream_left(subject: Subject, stream: AsyncIterator[object]) -> None:
    """Leaving a stream that stalls after its first item closes the upstream, which would go on, and charge."""
    subject.fake.tamper = stalled
    await anext(stream)
    await assert_left(subject, stream.aclose)  # type: ignore[attr-defined]  # a generator, or like one


async def assert_cancelled(subject: Subject, call: Coroutine[Any, Any, object], *, frames: int = 0) -> None:
    """Cancelling the call, once so many frames are written, closes the upstream at once."""
    before = len(subject.fake.seen)
    task = asyncio.ensure_future(call)
    await subject.fake.wait_started(before, frames=frames)

    async def cancel() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    await assert_left(subject, cancel)


async def assert_cut_is_an_error(
    subject: Subject, call: Callable[[], Awaitable[object]], *ends: Literal["cut", "whole"]
) -> None:
    """An answer that ends before its last frame, in each of the ways in `ends`, raises."""
    for end in ends:

        def shorten(reply: Reply, end: Literal["cut", "whole"] = end) -> Reply:
            if reply.frames is None:
                return _halve(reply)
            return msgspec.structs.replace(reply, frames=reply.frames[:-1], end=end)

        subject.fake.tamper = shorten
        assert_upstream_error(await error_of(call(), f"half an answer, end {end!r},"), subject.secrets)


def impatient(subject: Subject) -> Target:
    """The target with short timeouts."""
    return msgspec.structs.replace(subject.target, timeouts=Timeouts(connect=2, first_byte=0.2, idle=0.2))


def stalled(reply: Reply) -> Reply:
    """The first half of the answer's frames, and then silence."""
    frames = reply.frames or [reply.body]
    return msgspec.structs.replace(reply, frames=frames[: max(2, len(frames) // 2)], end="silence")


def _halve(reply: Reply) -> Reply:
    return msgspec.structs.replace(reply, cut_after=len(reply.body) // 2)


def _named(name: str, *cases: Case) -> tuple[Case, ...]:
    for case in cases:
        case.__name__ = f"{name}_{case.__name__}".removeprefix("chat_")
    return cases

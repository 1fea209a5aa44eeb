"""What every provider must do about a call, whichever endpoint it serves; and what the cases of all endpoints share.

`local_cases(name, call)` and `upstream_cases(name, …)` make the cases of one endpoint out of its plain calls: the
model is sent, typed errors for each status, no secret and no address in any of them, prompt cancellation. If
`check_provider` has a `refusal`, each status also comes in the vendor's own shape, whose reason and pause must not be
lost. Sharp edge: errors come in OpenAI's body shape whatever the dialect, because real proxies in front of every vendor
do that too; the status must suffice.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Literal, TypeVar

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
from gateway.testing.call_steps import Fault, Steps, faulty, halved, in_frames, rehearse, stalled
from gateway.testing.reply import Reply
from gateway.testing.sent_cases import sent_by
from gateway.testing.subject import Case, NotConcerned, Subject, assert_upstream_error

CLOSED_WITHIN = 0.25  # seconds of the event loop's time from leaving a call to the upstream's seeing it
SEEN_WITHIN = 5.0  # seconds until a case about it is given up
LOOK_EVERY = 0.01  # seconds
PROMPT_END = 1.0  # seconds that leaving or cancelling a call may take
PAUSE = 7  # seconds that an upstream asks to wait
REASON = "the quagga is extinct"  # of a refusal, for the caller
NO_USAGE = "no usage came, so the gateway estimates; if the vendor sends its counts, the answer should have them"
Call = Callable[[Subject, Target], Coroutine[Any, Any, object]]
A = TypeVar("A")
R = TypeVar("R")

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
        asked = task.cancel()
        done, _ = await asyncio.wait([task], timeout=PROMPT_END)
        assert done, f"the call went on for {PROMPT_END} s after it was cancelled"
        if asked:
            assert_was_cancelled(task)

    async def secrets_stay_hidden(subject: Subject) -> None:
        shown = f"{subject.options!r} {subject.provider!r} {subject.provider!s}"
        assert not any(secret in shown for secret in subject.secrets), "a repr shows a secret"

    return _named(name, cancellation_is_obeyed, secrets_stay_hidden)


def upstream_cases(name: str, call: Call, *, stream: Call | None = None) -> tuple[Case, ...]:
    """What must become of an upstream that refuses, lies, stalls or breaks off; `stream` is another call to check."""
    calls = {"the call": call, **({"the stream": stream} if stream else {})}

    async def statuses_become_typed_errors(subject: Subject) -> None:
        leak = f"refused {' '.join(subject.secrets)} at {subject.fake.url}/internal"
        for which, one in calls.items():
            steps = await rehearse(subject, _plain(one))
            for status, kind in BY_STATUS:
                reply = Reply.error(status, leak, headers={"Retry-After": str(PAUSE)})
                async for error, _, what in _errors(subject, one, steps, reply, f"{which} with status {status}"):
                    assert isinstance(error, kind), f"{what}: it gave {type(error).__name__}, not {kind}"
                    assert status != 429 or error.retry_after == PAUSE, f"{what}: Retry-After was not honoured"

    async def refusals_of_the_vendor_become_typed_errors(subject: Subject) -> None:
        if subject.refusal is None:
            raise NotConcerned("`check_provider` was given no `refusal`")
        text = f"{REASON}: refused {' '.join(subject.secrets)} at {subject.fake.url}/internal"
        for which, one in calls.items():
            steps = await rehearse(subject, _plain(one))
            for status, kind in BY_STATUS:
                reply = subject.refusal(status, text)
                paused = status == 429 and _asks_for_pause(reply, text)
                of = f"{which} with status {status} in the vendor's shape"
                async for error, _, what in _errors(subject, one, steps, reply, of):
                    assert isinstance(error, kind), f"{what}: it gave {type(error).__name__}, not {kind}"
                    told = kind is not UpstreamRejected or REASON in error.message
                    assert told, f"{what}: the vendor's reason is lost, the message is {error.message!r}"
                    assert not paused or error.retry_after == PAUSE, (
                        f"{what}: the vendor's pause of {PAUSE} s is lost, retry_after is {error.retry_after}"
                    )

    async def model_is_sent(subject: Subject) -> None:
        if not subject.target.model:
            raise NotConcerned("the target has no model")
        for which, one in calls.items():
            sent = await sent_by(subject, one(subject, subject.target))
            assert sent.says(subject.target.model), f"{which} did not send target.model, {subject.target.model!r}"

    async def broken_error_bodies_do_no_harm(subject: Subject) -> None:
        for which, one in calls.items():
            steps = await rehearse(subject, _plain(one))
            for body in (b"", b"<html>busy</html>", b'"text"', b"[]", b'{"error":[[]]}', b"\xff\xfe", b"[" * 5000):
                reply = Reply(status=500, body=body)
                async for error, _, what in _errors(subject, one, steps, reply, f"{which} with body {body[:20]!r}"):
                    assert isinstance(error, UpstreamError), f"{what}: it gave {type(error).__name__}"

    async def hang_up_is_unreachable(subject: Subject) -> None:
        for which, one in calls.items():
            steps = await rehearse(subject, _plain(one))
            async for error, _, what in _errors(subject, one, steps, Reply.hang_up(), f"{which} without an answer"):
                assert isinstance(error, UpstreamUnreachable), f"{what}: it gave {type(error).__name__}"

    async def nonsense_is_an_invalid_response(subject: Subject) -> None:
        for which, one in calls.items():
            steps = await rehearse(subject, _plain(one))
            for body in (b"<html>hello</html>", b"{", b"null", b"[]", b"{}"):
                reply = Reply(body=body, headers={"Content-Type": "application/json"})
                async for error, last, what in _errors(subject, one, steps, reply, f"{which} with body {body!r}"):
                    # A stream without a single event may also count as one that was cut.
                    exact = last and one is call and not steps.streamed
                    invalid = not exact or isinstance(error, UpstreamInvalidResponse)
                    assert invalid, f"{what}: it gave {type(error).__name__}"

    return _named(
        name,
        model_is_sent,
        statuses_become_typed_errors,
        refusals_of_the_vendor_become_typed_errors,
        broken_error_bodies_do_no_harm,
        hang_up_is_unreachable,
        nonsense_is_an_invalid_response,
        *_interruptions(call, calls),
    )


def _interruptions(call: Call, calls: Mapping[str, Call]) -> tuple[Case, ...]:
    """The cases about an answer that does not come to its end; `calls` are those of `upstream_cases`."""

    async def cut_answer_is_an_error(subject: Subject) -> None:
        steps = await rehearse(subject, _plain(call))
        for position in steps.positions():
            async with faulty(subject, position, halved) as fault:
                error = await error_of(call(fault.subject, subject.target), f"half a document{_of(steps, position)}")
            assert_upstream_error(error, subject.secrets)

    async def silence_times_out(subject: Subject) -> None:
        for which, one in calls.items():
            steps = await rehearse(subject, _plain(one))
            for position in steps.positions():
                what = f"{which} of a silent upstream{_of(steps, position)}"
                async with faulty(subject, position, _silent, once=True) as fault:
                    error = await error_of(one(fault.subject, impatient(subject)), what)
                assert isinstance(error, UpstreamTimeout), f"{what}: silence gave {type(error).__name__}"

    async def cancelling_closes_the_upstream(subject: Subject) -> None:
        for one in calls.values():
            steps = await rehearse(subject, _plain(one))
            for position in steps.positions():
                async with faulty(subject, position, _silent, once=True) as fault:
                    # A sign-in may go on, because other calls wait for it, too.
                    closes = position == steps.answer
                    await assert_cancelled(fault, one(fault.subject, subject.target), closes=closes)

    return cut_answer_is_an_error, silence_times_out, cancelling_closes_the_upstream


# What cases share ----------------------------------------------------------------------------------------------------


async def error_of(call: Awaitable[object], what: str) -> BaseException:
    """What the call raised; it must have."""
    try:
        answer = await call
    except Exception as error:
        # The kit judges whatever a third party's code raises.
        return error
    raise AssertionError(f"{what} gave an answer instead of an error: {answer!r}")


def assert_valid(validate: Callable[[A, R], A], answer: A, request: R) -> A:
    """The answer as the gateway takes it; the case fails for one that it refuses."""
    try:
        return validate(answer, request)
    except Exception as error:
        # The kit judges whatever a third party's code returns.
        raise AssertionError(f"the answer is none: {getattr(error, 'detail', None) or error}") from error


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


async def assert_left(fault: Fault, leave: Callable[[], Awaitable[None]]) -> None:
    """Leaving the call closes the upstream at once.

    A task counts the time in steps of LOOK_EVERY. Time in which the loop has no processor does not count, so the bound
    holds on a busy machine.
    """
    looks = 0

    async def count() -> None:
        nonlocal looks
        while True:
            await asyncio.sleep(LOOK_EVERY)
            looks += 1

    counting = asyncio.create_task(count())
    try:
        await leave()
        seen = await fault.subject.fake.wait_ended(fault.place, within=SEEN_WITHIN)
    finally:
        counting.cancel()
    took = looks * LOOK_EVERY
    assert seen.outcome == "left", f"the upstream's answer ended as {seen.outcome!r}"
    assert took <= CLOSED_WITHIN, f"the upstream saw the end {took:.2f} s after the caller had left"


async def assert_stream_left(subject: Subject, call: Callable[[Subject], AsyncIterator[object]]) -> None:
    """Leaving a stream that stalls after its first item closes the upstream, which would go on, and charge."""
    steps = await rehearse(subject, lambda one: read_to_end(call(one)))
    async with faulty(subject, steps.answer, in_frames(steps, stalled)) as fault:
        stream = call(fault.subject)
        await anext(stream)
        await assert_left(fault, stream.aclose)  # type: ignore[attr-defined]  # a generator, or like one


async def assert_cancelled(
    fault: Fault, call: Coroutine[Any, Any, object], *, frames: int = 0, closes: bool = True
) -> None:
    """Cancelling the call, once so many frames are written, ends it, and closes the upstream at once if `closes`."""
    task = asyncio.ensure_future(call)
    await fault.subject.fake.wait_started(fault.place, frames=frames)

    async def cancel() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    if closes:
        await assert_left(fault, cancel)
    else:
        await cancel()
        fault.subject.fake.drop()  # a request that still waits, in a task of the provider, gets no answer
    assert_was_cancelled(task)


def assert_was_cancelled(task: asyncio.Future[object]) -> None:
    """The end of a task that was cancelled while it ran is CancelledError, and no answer."""
    if not task.cancelled():
        answer = task.result()
        raise AssertionError(f"the call swallowed its cancellation and gave {answer!r}; raise CancelledError again")


async def assert_cut_is_an_error(
    subject: Subject, call: Callable[[Subject], Awaitable[object]], *ends: Literal["cut", "whole"]
) -> None:
    """An answer that ends before its last frame, in each of the ways in `ends`, raises."""
    steps = await rehearse(subject, call)
    for end in ends:

        def shorten(reply: Reply, end: Literal["cut", "whole"] = end) -> Reply:
            if reply.frames is None:
                return halved(reply)
            return msgspec.structs.replace(reply, frames=reply.frames[:-1], end=end)

        async with faulty(subject, steps.answer, in_frames(steps, shorten)) as fault:
            error = await error_of(call(fault.subject), f"half an answer, end {end!r},")
        assert_upstream_error(error, subject.secrets)


async def read_to_end(stream: AsyncIterator[object]) -> list[object]:
    """Everything that a stream gives."""
    return [item async for item in stream]


def impatient(subject: Subject) -> Target:
    """The target with short timeouts."""
    return msgspec.structs.replace(subject.target, timeouts=Timeouts(connect=2, first_byte=0.2, idle=0.2))


async def _errors(
    subject: Subject, call: Call, steps: Steps, reply: Reply, what: str
) -> AsyncIterator[tuple[Any, bool, str]]:
    """What the call raises if it gets `reply` from each of its requests on; with the answer's, and what was done.

    A request before the answer may be a sign-in, whose refusals are about the operator's credential.
    """
    for position in steps.positions():
        done = f"{what}{_of(steps, position)}"
        async with faulty(subject, position, lambda _: reply) as fault:
            error = await error_of(call(fault.subject, subject.target), done)
            if reply.status >= 500:
                of_call = subject.fake.seen[fault.place - position :]
                sent = [(seen.method, seen.path, seen.body) for seen in of_call]
                again = not set(sent[: position + 1]).isdisjoint(sent[position + 1 :])
                assert not again, f"{done}: the provider sent the same request again"
        assert_upstream_error(error, subject.secrets)
        last = position == steps.answer
        if last or not isinstance(error, UpstreamAuthError):
            yield error, last, done


def _of(steps: Steps, position: int) -> str:
    """Which of several requests it is."""
    return "" if steps.answer == 0 else f", from request {position + 1} of {steps.answer + 1} on"


def _plain(call: Call) -> Callable[[Subject], Awaitable[object]]:
    """The call with the subject's own target."""
    return lambda subject: call(subject, subject.target)


def _asks_for_pause(reply: Reply, text: str) -> bool:
    """Whether a refusal names the pause, in its document or its headers."""
    body = reply.body.decode("utf-8", "replace").replace(text, "")
    said = " ".join([body, *reply.headers.values()])
    return re.search(rf"(?<![\w.-]){PAUSE}(\.0+)?(?![\w.])", said) is not None


def _silent(_: Reply) -> Reply:
    return Reply.silence()


def _named(name: str, *cases: Case) -> tuple[Case, ...]:
    for case in cases:
        case.__name__ = f"{name}_{case.__name__}".removeprefix("chat_")
    return cases

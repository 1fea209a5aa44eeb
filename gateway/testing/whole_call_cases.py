"""What every provider must do about a call that is answered whole, whichever endpoint it serves.

`cases(call)` makes the cases of one endpoint out of its plain call: typed errors for each status, no secret and no
address in any of them, prompt cancellation. Sharp edge: errors come in OpenAI's body shape whatever the dialect, as in
`upstream_cases`; the status must suffice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from gateway.errors import UpstreamError, UpstreamInvalidResponse, UpstreamTimeout, UpstreamUnreachable
from gateway.http_client.timeouts import Timeouts
from gateway.plugins.provider import Target
from gateway.testing.reply import Reply
from gateway.testing.subject import Case, Subject, assert_upstream_error
from gateway.testing.upstream_cases import BY_STATUS, assert_left, error_of

PROMPT_END = 1.0  # seconds that a cancelled call may take
Call = Callable[[Subject, Target], Awaitable[object]]


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


def upstream_cases(name: str, call: Call) -> tuple[Case, ...]:
    """What must become of an upstream that refuses, lies, stalls or breaks off."""

    async def statuses_become_typed_errors(subject: Subject) -> None:
        leak = f"refused {' '.join(subject.secrets)} at {subject.fake.url}/internal"
        for status, kind in BY_STATUS:
            subject.fake.enqueue(Reply.error(status, leak, headers={"Retry-After": "7"}))
            error = await error_of(call(subject, subject.target), f"status {status}")
            assert_upstream_error(error, subject.secrets)
            assert isinstance(error, kind), f"status {status} gave {type(error).__name__}, not {kind.__name__}"

    async def broken_error_bodies_do_no_harm(subject: Subject) -> None:
        for body in (b"", b"<html>busy</html>", b'"text"', b"[]", b'{"error":[[]]}', b"\xff\xfe", b"[" * 5000):
            subject.fake.enqueue(Reply(status=500, body=body))
            error = await error_of(call(subject, subject.target), f"body {body[:20]!r}")
            assert_upstream_error(error, subject.secrets)
            assert isinstance(error, UpstreamError), f"body {body[:20]!r} gave {type(error).__name__}"

    async def hang_up_is_unreachable(subject: Subject) -> None:
        subject.fake.enqueue(Reply.hang_up())
        error = await error_of(call(subject, subject.target), "no answer")
        assert isinstance(error, UpstreamUnreachable), f"gave {type(error).__name__}, not UpstreamUnreachable"
        assert_upstream_error(error, subject.secrets)

    async def nonsense_is_an_invalid_response(subject: Subject) -> None:
        for body in (b"<html>hello</html>", b"{", b"null", b"[]", b"{}"):
            subject.fake.enqueue(Reply(body=body, headers={"Content-Type": "application/json"}))
            error = await error_of(call(subject, subject.target), f"body {body!r}")
            assert isinstance(error, UpstreamInvalidResponse), f"body {body!r} gave {type(error).__name__}"

    async def cut_answer_is_an_error(subject: Subject) -> None:
        subject.fake.tamper = _halve
        assert_upstream_error(await error_of(call(subject, subject.target), "half a document"), subject.secrets)

    async def silence_times_out(subject: Subject) -> None:
        target = msgspec.structs.replace(subject.target, timeouts=Timeouts(connect=2, first_byte=0.2, idle=0.2))
        subject.fake.enqueue(Reply.silence())
        error = await error_of(call(subject, target), "a silent upstream")
        assert isinstance(error, UpstreamTimeout), f"silence gave {type(error).__name__}"

    async def cancelling_closes_the_upstream(subject: Subject) -> None:
        subject.fake.enqueue(Reply.silence())
        before = len(subject.fake.seen)
        task = asyncio.ensure_future(call(subject, subject.target))
        await subject.fake.wait_started(before)

        async def cancel() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        await assert_left(subject, cancel)

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


def _halve(reply: Reply) -> Reply:
    return msgspec.structs.replace(reply, cut_after=len(reply.body) // 2)


def _named(name: str, *cases: Case) -> tuple[Case, ...]:
    for case in cases:
        case.__name__ = f"{name}_{case.__name__}"
    return cases

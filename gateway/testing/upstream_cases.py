"""What a chat provider must make of an upstream that refuses, lies, stalls or breaks off.

The cases bend whatever the `FakeUpstream` would have answered, so they hold for every dialect: frames are cut, split,
delayed, replaced. If a call needs several requests, only the answer is bent, which is the last reply that has frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import UpstreamTimeout
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import ChatRequest
from gateway.testing import told_cases, whole_call_cases
from gateway.testing.call_steps import faulty, in_frames, rehearse, shredded, stalled
from gateway.testing.chat_cases import ask, stream_call
from gateway.testing.declared_cases import declared_cases
from gateway.testing.fake_upstream import Reply
from gateway.testing.sent_cases import ChatCall, sent_cases
from gateway.testing.subject import Case, Subject, assert_sound_stream, assert_upstream_error
from gateway.testing.whole_call_cases import assert_cancelled, assert_stream_left, error_of, impatient


async def cut_stream_never_looks_whole(subject: Subject) -> None:
    """A stream that ends before its end, cleanly or not, raises or leaves a choice without its finish."""
    steps = await rehearse(subject, _stream)
    for end in ("cut", "whole"):
        for share in (0.0, 0.3, 0.6):

            def shorten(reply: Reply, end: str = end, share: float = share) -> Reply:
                frames = reply.frames or []
                return msgspec.structs.replace(reply, frames=frames[: int(len(frames) * share)], end=end)

            async with faulty(subject, steps.answer, in_frames(steps, shorten)) as fault:
                call = fold_chat(fault.subject.chat.stream_chat(ask(), subject.target))
                error = await error_of(call, f"{share:.0%} of a stream, end {end!r},")
            assert_upstream_error(error, subject.secrets)


async def frames_may_be_split_anywhere(subject: Subject) -> None:
    """Frames do not arrive as they were written, and documents arrive in pieces."""
    subject.fake.tamper = shredded
    assert_sound_stream(await subject.stream(ask()))


async def stalled_stream_times_out(subject: Subject) -> None:
    """No further chunk in time."""
    steps = await rehearse(subject, _stream)
    async with faulty(subject, steps.answer, in_frames(steps, stalled)) as fault:
        error = await error_of(stream_call(fault.subject, impatient(subject)), "a stalled stream")
    assert isinstance(error, UpstreamTimeout), f"silence within a stream gave {type(error).__name__}"
    assert_upstream_error(error, subject.secrets)


async def leaving_closes_the_upstream(subject: Subject) -> None:
    """Whoever leaves a stream leaves the upstream, which would go on generating, and charging."""
    await assert_stream_left(subject, lambda one: one.chat.stream_chat(ask(), one.target))


async def cancelling_a_stream_closes_the_upstream(subject: Subject) -> None:
    """The same for a cancelled task that waits for a chunk."""
    steps = await rehearse(subject, _stream)
    async with faulty(subject, steps.answer, in_frames(steps, stalled)) as fault:
        await assert_cancelled(fault, stream_call(fault.subject, subject.target), frames=2)


async def _stream(subject: Subject) -> object:
    return await stream_call(subject, subject.target)


async def _call(subject: Subject, target: Any) -> object:
    return await subject.chat.chat(ask(), target)


async def _answered(subject: Subject, request: ChatRequest) -> object:
    return await subject.chat.chat(request, subject.target)


async def _streamed(subject: Subject, request: ChatRequest) -> object:
    return await subject.stream(request)


CALLS: Mapping[str, ChatCall] = {"the call": _answered, "the stream": _streamed}
CASES: tuple[Case, ...] = (
    *sent_cases(ask, CALLS),
    *declared_cases(ask, CALLS),
    *whole_call_cases.upstream_cases("chat", _call, stream=stream_call),
    cut_stream_never_looks_whole,
    frames_may_be_split_anywhere,
    stalled_stream_times_out,
    leaving_closes_the_upstream,
    cancelling_a_stream_closes_the_upstream,
    *told_cases.CASES,
)

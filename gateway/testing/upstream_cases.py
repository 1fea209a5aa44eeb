"""What a chat provider must make of an upstream that refuses, lies, stalls or breaks off.

The cases bend whatever the `FakeUpstream` would have answered, so they hold for every dialect: frames are cut, split,
delayed, replaced.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.errors import UpstreamTimeout
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.testing import whole_call_cases
from gateway.testing.chat_cases import ask, stream_call
from gateway.testing.fake_upstream import Reply
from gateway.testing.subject import Case, Subject, assert_sound_stream, assert_upstream_error
from gateway.testing.whole_call_cases import assert_cancelled, assert_stream_left, error_of, impatient, stalled


async def cut_stream_never_looks_whole(subject: Subject) -> None:
    """A stream that ends before its end, cleanly or not, raises or leaves a choice without its finish."""
    for end in ("cut", "whole"):
        for share in (0.0, 0.3, 0.6):

            def shorten(reply: Reply, end: str = end, share: float = share) -> Reply:
                frames = reply.frames or []
                return msgspec.structs.replace(reply, frames=frames[: int(len(frames) * share)], end=end)

            subject.fake.tamper = shorten
            call = fold_chat(subject.chat.stream_chat(ask(), subject.target))
            error = await error_of(call, f"{share:.0%} of a stream, end {end!r},")
            assert_upstream_error(error, subject.secrets)


async def frames_may_be_split_anywhere(subject: Subject) -> None:
    """Frames do not arrive as they were written."""

    def shred(reply: Reply) -> Reply:
        body = b"".join(reply.frames or [])
        pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
        return msgspec.structs.replace(reply, frames=pieces)

    subject.fake.tamper = shred
    assert_sound_stream(await subject.stream(ask()))


async def stalled_stream_times_out(subject: Subject) -> None:
    """No further chunk in time."""
    subject.fake.tamper = stalled
    error = await error_of(stream_call(subject, impatient(subject)), "a stalled stream")
    assert isinstance(error, UpstreamTimeout), f"silence within a stream gave {type(error).__name__}"
    assert_upstream_error(error, subject.secrets)


async def leaving_closes_the_upstream(subject: Subject) -> None:
    """Whoever leaves a stream leaves the upstream, which would go on generating, and charging."""
    await assert_stream_left(subject, subject.chat.stream_chat(ask(), subject.target))


async def cancelling_a_stream_closes_the_upstream(subject: Subject) -> None:
    """The same for a cancelled task that waits for a chunk."""
    subject.fake.tamper = stalled
    await assert_cancelled(subject, stream_call(subject, subject.target), frames=2)


async def _call(subject: Subject, target: Any) -> object:
    return await subject.chat.chat(ask(), target)


CASES: tuple[Case, ...] = (
    *whole_call_cases.upstream_cases("chat", _call, stream=stream_call),
    cut_stream_never_looks_whole,
    frames_may_be_split_anywhere,
    stalled_stream_times_out,
    leaving_closes_the_upstream,
    cancelling_a_stream_closes_the_upstream,
)

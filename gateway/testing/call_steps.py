"""The requests of one call, and a fault that begins at one of them.

A provider may need several requests for an answer: a sign-in, uploads, a job, and then the answer itself. `rehearse`
runs a call without a fault and finds the request whose reply is the answer. `faulty` gives a fresh provider, which has
no token yet, and changes the replies to its requests from a position on. So each request of a call fails once, and the
requests before it succeed. Sharp edge: positions count from the start of the call; requests of `start` have none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import cycle

from msgspec import Struct, structs

from gateway.testing.reply import Reply
from gateway.testing.subject import Subject

Change = Callable[[Reply], Reply]


class Steps(Struct, frozen=True):
    """What a call without a fault sent."""

    answer: int  # position of the request whose reply is the answer
    streamed: bool  # that reply has frames

    def positions(self) -> range:
        """Every request up to the answer; what comes after it, such as a clean-up, cannot fail the call."""
        return range(self.answer + 1)


async def rehearse(subject: Subject, call: Callable[[Subject], Awaitable[object]]) -> Steps:
    """The steps of a call, from one run without a fault."""
    replies: list[tuple[str, Reply]] = []
    async with subject.fresh() as one:
        first = len(one.fake.seen)

        def note(reply: Reply) -> Reply:
            replies.append((one.fake.seen[-1].method, reply))
            return reply

        one.fake.tamper = note
        await call(one)
        assert replies or len(one.fake.seen) > first, "the call sent no request to the upstream"
    return _steps(replies)


def _steps(replies: list[tuple[str, Reply]]) -> Steps:
    """The answer is the last reply in frames, or else the last document that is no clean-up's."""
    streamed = [position for position, (_, reply) in enumerate(replies) if reply.frames is not None]
    if streamed:
        return Steps(streamed[-1], streamed=True)
    documents = [position for position, (method, reply) in enumerate(replies) if reply.body and method != "DELETE"]
    return Steps(documents[-1] if documents else max(0, len(replies) - 1), streamed=False)


class Fault:
    """Changes the replies to the requests of `subject` from the one at `position` on, or to that one alone."""

    def __init__(self, subject: Subject, position: int, change: Change, *, once: bool) -> None:
        self.subject = subject
        self.place = len(subject.fake.seen) + position  # in the upstream's log
        self._change, self._once = change, once

    def __call__(self, reply: Reply) -> Reply:
        at = len(self.subject.fake.seen) - 1  # the request that is answered now
        return self._change(reply) if at == self.place or (at > self.place and not self._once) else reply


@asynccontextmanager
async def faulty(subject: Subject, position: int, change: Change, *, once: bool = False) -> AsyncIterator[Fault]:
    """A fresh provider whose upstream has this fault."""
    async with subject.fresh() as one:
        one.fake.tamper = fault = Fault(one, position, change, once=once)
        yield fault


def in_frames(steps: Steps, change: Change) -> Change:
    """`change` for the answer alone: if the answer has frames, documents such as a sign-in's are left as they are."""
    return lambda reply: reply if steps.streamed and reply.frames is None else change(reply)


def stalled(reply: Reply) -> Reply:
    """The first half of the answer's frames, and then silence."""
    frames = reply.frames or [reply.body]
    return structs.replace(reply, frames=frames[: max(2, len(frames) // 2)], end="silence")


def halved(reply: Reply) -> Reply:
    """Half of a document, or nothing of a stream, and then the end of the connection."""
    return structs.replace(reply, cut_after=len(reply.body) // 2)


def staggered() -> Change:
    """Replies that overtake each other, and whose frames come one by one."""
    delays = cycle((0.02, 0.0, 0.01))
    return lambda reply: structs.replace(reply, delay=reply.delay + next(delays), interval=reply.interval or 0.001)


def shredded(reply: Reply) -> Reply:
    """The same bytes in frames of a few bytes, whether they were frames or a document."""
    body = reply.body if reply.frames is None else b"".join(reply.frames)
    if not body:
        return reply
    size = max(7, len(body) // 2000)
    return structs.replace(reply, frames=[body[start : start + size] for start in range(0, len(body), size)])

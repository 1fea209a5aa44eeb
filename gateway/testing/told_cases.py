"""What of a vendor's chat answer must reach the caller, its reason and its counts; and that connections are freed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_response import ChatCompletion
from gateway.testing.chat_cases import ask
from gateway.testing.openai_dialect import ENDINGS, openai_dialect
from gateway.testing.subject import Case, NotConcerned, Subject

MORE_CALLS = 4  # after the first ones, which may open connections that are kept
SETTLES_WITHIN = 5.0  # seconds


async def finish_reasons_are_told(subject: Subject) -> None:
    """An answer that ended at the limit, or for another reason, says so, whole and streamed."""
    fake = subject.fake
    usual = fake.answer
    endings = subject.endings or (ENDINGS if usual is openai_dialect else None)
    if not endings:
        raise NotConcerned("`check_provider` was given no `endings`")
    try:
        for reason, fake.answer in endings.items():
            for which, answer in (await _answers(subject)).items():
                told = {choice.finish_reason for choice in answer.choices}
                assert told == {reason}, (
                    f"{which}: the vendor's answer ended for {reason!r}, and the finish reason is "
                    f"{', '.join(map(repr, sorted(map(str, told))))}"
                )
    finally:
        fake.answer = usual


async def usage_is_told(subject: Subject) -> None:
    """The vendor's counts reach the caller, who pays by them."""
    if not subject.sends_counts:
        raise NotConcerned("`sends_counts` is False: the vendor sends no counts")
    for which, answer in (await _answers(subject)).items():
        assert answer.usage is not None and answer.usage.total_tokens > 0, (
            f"{which}: the vendor's counts are lost, usage is {answer.usage!r}; for a vendor that sends none give "
            "`sends_counts=False`"
        )


async def connections_are_given_back(subject: Subject) -> None:
    """Calls that have ended hold no connection, and `close` leaves none open."""
    fake = subject.fake
    before = fake.connections
    one = subject.fresh()
    async with one:
        await _answers(one)
        first = fake.connections
        for _ in range(MORE_CALLS):
            await _answers(one)
        assert await _settles(lambda: fake.connections < first + MORE_CALLS), (
            f"{2 * MORE_CALLS} further calls left {fake.connections - first} further connections open"
        )
    assert await _settles(lambda: fake.connections <= before), (
        f"`close` left {fake.connections - before} connections to the upstream open"
    )


async def _answers(subject: Subject) -> dict[str, ChatCompletion]:
    """The answer to one question, in both ways."""
    return {
        "the whole answer": await subject.chat.chat(ask(), subject.target),
        "the stream": await fold_chat(subject.chat.stream_chat(ask(), subject.target)),
    }


async def _settles(holds: Callable[[], bool]) -> bool:
    """Whether it holds soon: the upstream learns of the end of a connection a moment later."""
    deadline = time.monotonic() + SETTLES_WITHIN
    while time.monotonic() < deadline:
        if holds():
            return True
        await asyncio.sleep(0.002)
    return holds()


CASES: tuple[Case, ...] = (finish_reasons_are_told, usage_is_told, connections_are_given_back)

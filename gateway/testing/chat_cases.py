"""What a chat provider must do whatever it talks to; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import cast

import msgspec

from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.chat_response import FINISH_REASONS, ChatChunk, ChatCompletion
from gateway.testing.subject import Case, Subject, assert_sane_usage, assert_sound_stream

PROMPT_END = 1.0  # seconds that leaving a stream may take


def question(text: str = "Repeat these five words please") -> ChatRequest:
    """A plain request."""
    body = {"model": "public-name", "messages": [{"role": "user", "content": text}]}
    return decode_chat_request(msgspec.json.encode(body))


async def stream_is_sound(subject: Subject) -> None:
    """Chunks come in order, with one finish per choice and possible usage."""
    assert_sound_stream(await subject.stream(question()))


async def whole_answer_is_sound(subject: Subject) -> None:
    """`chat` gives what the stream would have spelled out."""
    answer = await subject.chat.chat(question(), subject.target)
    assert isinstance(answer, ChatCompletion), f"chat returned {answer!r} instead of a ChatCompletion"
    msgspec.json.encode(answer)
    assert answer.choices, "no choices"
    for choice in answer.choices:
        message = choice.message
        assert message.role == "assistant", f"the message's role is {message.role!r}"
        assert message.content or message.tool_calls or message.refusal, "the message says nothing"
        assert choice.finish_reason in FINISH_REASONS, f"finish reason {choice.finish_reason!r} is not the wire's"
    if answer.usage is not None:
        assert_sane_usage(answer.usage)


async def calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls: each of them ends soundly."""
    streams = await asyncio.gather(*(subject.stream(question(f"number {n} is the word")) for n in range(8)))
    for chunks in streams:
        assert_sound_stream(chunks)


async def request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = question()
    before = dict(request.fields), msgspec.json.encode(request.messages), request.model
    await subject.stream(request)
    after = dict(request.fields), msgspec.json.encode(request.messages), request.model
    assert before == after, "the provider changed the request"


async def leaving_early_is_prompt(subject: Subject) -> None:
    """A stream that is closed after its first chunk ends at once."""
    stream = cast("AsyncGenerator[ChatChunk, None]", subject.chat.stream_chat(question(), subject.target))
    await anext(stream)
    try:
        await asyncio.wait_for(stream.aclose(), PROMPT_END)
    except TimeoutError:
        raise AssertionError(f"closing the stream took over {PROMPT_END} s") from None


async def cancellation_is_obeyed(subject: Subject) -> None:
    """A cancelled call ends at once and does not swallow the cancellation."""
    task = asyncio.ensure_future(subject.stream(question()))
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=PROMPT_END)
    assert done, f"the call went on for {PROMPT_END} s after it was cancelled"
    with contextlib.suppress(asyncio.CancelledError):
        task.result()


async def secrets_stay_hidden(subject: Subject) -> None:
    """No repr shows a credential."""
    shown = f"{subject.options!r} {subject.provider!r} {subject.provider!s}"
    assert not any(secret in shown for secret in subject.secrets), "a repr shows a secret"


CASES: tuple[Case, ...] = (
    stream_is_sound,
    whole_answer_is_sound,
    calls_at_once_do_not_mix,
    request_is_left_as_it_was,
    leaving_early_is_prompt,
    cancellation_is_obeyed,
    secrets_stay_hidden,
)

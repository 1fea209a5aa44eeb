"""What a chat provider must do whatever it talks to; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.chat_response import FINISH_REASONS, ChatCompletion
from gateway.testing.subject import Case, Subject, assert_sane_usage, assert_sound_stream
from gateway.testing.whole_call_cases import assert_closes_promptly, assert_unchanged, local_cases


def ask(text: str = "Say something in five words.", *, fields: Mapping[str, Any] | None = None) -> ChatRequest:
    """A chat request as the gateway would hand it to a provider; `fields` are further fields of its body."""
    body = {"model": "public-name", "messages": [{"role": "user", "content": text}], **(fields or {})}
    return decode_chat_request(msgspec.json.encode(body))


async def stream_is_sound(subject: Subject) -> None:
    """Chunks come in order, with one finish per choice and possible usage."""
    assert_sound_stream(await subject.stream(ask()))


async def whole_answer_is_sound(subject: Subject) -> None:
    """`chat` gives what the stream would have spelled out."""
    answer = await subject.chat.chat(ask(), subject.target)
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
    streams = await asyncio.gather(*(subject.stream(ask(f"number {n} is the word")) for n in range(8)))
    for chunks in streams:
        assert_sound_stream(chunks)


async def request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = ask()
    await assert_unchanged(request, subject.stream(request), "messages")


async def leaving_early_is_prompt(subject: Subject) -> None:
    """A stream that is closed after its first chunk ends at once."""
    await assert_closes_promptly(subject.chat.stream_chat(ask(), subject.target), "stream")


async def stream_call(subject: Subject, target: Any) -> object:
    """One plain stream."""
    return await subject.stream(ask(), target=target)


CASES: tuple[Case, ...] = (
    stream_is_sound,
    whole_answer_is_sound,
    calls_at_once_do_not_mix,
    request_is_left_as_it_was,
    leaving_early_is_prompt,
    *local_cases("chat", stream_call),
)

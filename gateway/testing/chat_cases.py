"""What a chat provider must do whatever it talks to; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.chat_response import FINISH_REASONS, ChatChunk, ChatCompletion, Delta
from gateway.testing.call_steps import staggered
from gateway.testing.subject import Case, Subject, assert_sane_usage, assert_sound_stream, assert_texts
from gateway.testing.turns import ATTEMPTS, BLOCKED, shortest_stall
from gateway.testing.whole_call_cases import NO_USAGE, assert_closes_promptly, assert_unchanged, local_cases


def ask(text: str = "Say something in five words.", *, fields: Mapping[str, Any] | None = None) -> ChatRequest:
    """A chat request as the gateway would hand it to a provider; `fields` are further fields of its body."""
    body = {"model": "public-name", "messages": [{"role": "user", "content": text}], **(fields or {})}
    return decode_chat_request(msgspec.json.encode(body))


async def stream_is_sound(subject: Subject) -> None:
    """Chunks come in order, with one finish per choice and possible usage."""
    chunks = await subject.stream(ask())
    assert_sound_stream(chunks)
    if not subject.has_upstream and not any(chunk.usage for chunk in chunks):
        subject.notes.append(f"the stream: {NO_USAGE}")


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
    elif not subject.has_upstream:
        subject.notes.append(f"the whole answer: {NO_USAGE}")


async def calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls: each of them ends soundly, with the answer that it gets alone."""
    texts = [f"number {n} is the word" for n in range(8)]
    alone = [await _said(subject, text) for text in texts]
    repeated = await _said(subject, texts[0])
    if subject.has_upstream:
        subject.fake.tamper = staggered()
    together = await asyncio.gather(*(_said(subject, text) for text in texts))
    for text, one in (*zip(texts, alone, strict=True), *zip(texts, together, strict=True)):
        assert not any(other in one for other in texts if other != text), (
            f"calls got each other's answers: {text!r} gave {one}"
        )
    if alone[0] != repeated:
        subject.notes.append("the same question has another answer each time, so answers at once were not compared")
        return
    for text, one, other in zip(texts, alone, together, strict=True):
        assert one == other, f"calls at once got other answers: {text!r} gave {other} and, alone, {one}"
    if len(set(alone)) == 1:
        subject.notes.append(
            "all questions have the same answer, so an answer to another call's question is not noticed; let the "
            "fake of the vendor repeat words of the question"
        )


async def _said(subject: Subject, text: str) -> str:
    """What a stream says in answer to `text`."""
    chunks = await subject.stream(ask(text))
    assert_sound_stream(chunks)

    async def replayed() -> AsyncIterator[ChatChunk]:
        for chunk in chunks:
            yield chunk

    answer = await fold_chat(replayed())
    return repr([(choice.message.content, choice.message.tool_calls) for choice in answer.choices])


async def request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = ask()
    await assert_unchanged(request, subject.stream(request), "messages")


async def leaving_early_is_prompt(subject: Subject) -> None:
    """A stream that is closed after its first chunk ends at once."""
    await assert_closes_promptly(subject.chat.stream_chat(ask(), subject.target), "stream")


async def content_is_text(subject: Subject) -> None:
    """Texts are `str`; a chunk without content is not yielded."""
    for chunk in await subject.stream(ask()):
        for part in chunk.choices:
            assert_texts(part.delta, "a chunk")
            empty = part.finish_reason is None and part.delta == Delta(content=None)
            assert not empty, "a chunk has None as its content and nothing else: yield no chunk instead"
    answer = await subject.chat.chat(ask(), subject.target)
    for choice in answer.choices:
        assert_texts(choice.message, "the whole answer")


async def loop_is_not_blocked(subject: Subject) -> None:
    """Other tasks get their turn while an answer is made; `turns` says why a busy machine does no harm."""
    stall = await shortest_stall(lambda: subject.stream(ask("Say it.")))
    assert stall < BLOCKED, (
        f"the stream kept every other call of the process waiting for {stall:.3f} s, in each of {ATTEMPTS} attempts: "
        "await what takes time, or let a thread do it"
    )


async def stream_call(subject: Subject, target: Any) -> object:
    """One plain stream."""
    return await subject.stream(ask(), target=target)


CASES: tuple[Case, ...] = (
    stream_is_sound,
    whole_answer_is_sound,
    calls_at_once_do_not_mix,
    request_is_left_as_it_was,
    leaving_early_is_prompt,
    content_is_text,
    loop_is_not_blocked,
    *local_cases("chat", stream_call),
)

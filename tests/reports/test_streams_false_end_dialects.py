"""False ends in the vendors' own dialects: content after a stop reason, and an end without any.

https://github.com/can1357/oh-my-pi/issues/9433: an answer that ended by its protocol was called truncated, because no
event had named a reason. https://github.com/open-webui/open-webui/issues/16377: finish reasons in the middle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec import UNSET

from gateway import ChatChunk, ChatCompletion
from gateway.errors import UpstreamTruncated
from gateway.plugins.chunk_accumulator import fold_chat
from tests.providers import converse_dialect, gemini_upstream, messages_dialect
from tests.providers.gemini_upstream import candidate, document, part, usage


async def again(chunks: list[ChatChunk]) -> AsyncIterator[ChatChunk]:
    """The chunks as a stream."""
    for chunk in chunks:
        yield chunk


def said(answer: ChatCompletion) -> tuple[str | None, str | None]:
    """The text of an answer, and its finish reason."""
    return answer.choices[0].message.content, answer.choices[0].finish_reason


def claude(*reasons: str | None) -> list[bytes]:
    """Two texts of Claude, each followed by a stop reason, None for none; then `message_stop`."""
    event = messages_dialect.event
    frames = [
        event("message_start", message={"role": "assistant", "content": [], "usage": {"input_tokens": 3}}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ]
    for text, reason in zip(("Good ", "day"), reasons, strict=True):
        frames.append(event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}))
        frames.append(event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 2}))
    return [*frames, event("message_stop")]


@pytest.mark.parametrize(
    ("reasons", "finish"),
    [
        (("end_turn", "end_turn"), "stop"),
        (("end_turn", "max_tokens"), "length"),
        (("end_turn", None), "stop"),
        ((None, None), "stop"),
        (("", ""), "stop"),
    ],
)
async def test_claude_text_after_a_stop_reason_is_part_of_the_answer(
    reasons: tuple[str | None, str | None], finish: str
) -> None:
    answer = await messages_dialect.folded(messages_dialect.streamed(*claude(*reasons)))
    assert said(answer) == ("Good day", finish)


async def test_gemini_text_after_a_finish_reason_is_part_of_the_answer() -> None:
    first = document(candidate(part(text="Good "), finish="STOP"), usage=usage(7, 1))
    last = document(candidate(part(text="day"), finish="MAX_TOKENS"), usage=usage(7, 2))
    chunks = await gemini_upstream.chunks_of(first, last)
    answer = await fold_chat(again(chunks))
    assert said(answer) == ("Good day", "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


@pytest.mark.parametrize("finish", [None, ""])
async def test_gemini_stream_that_ends_with_text_after_its_finish_is_a_truncation(finish: str | None) -> None:
    first = document(candidate(part(text="Good "), finish="STOP"), usage=usage(7, 1))
    last = document(candidate(part(text="day"), finish=finish), usage=usage(7, 2))
    with pytest.raises(UpstreamTruncated):
        await gemini_upstream.chunks_of(first, last)


async def test_bedrock_text_after_a_stop_is_part_of_the_answer() -> None:
    event = converse_dialect.event
    frames = [
        event("contentBlockDelta", contentBlockIndex=0, delta={"text": "Good "}),
        event("messageStop", stopReason="end_turn"),
        event("contentBlockDelta", contentBlockIndex=0, delta={"text": "day"}),
        event("metadata", usage={"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}),
    ]
    answer = await converse_dialect.folded(converse_dialect.streamed(*frames))
    assert said(answer) == ("Good day", "stop")


@pytest.mark.parametrize(
    ("reasons", "finish"),
    [(["stop"], "stop"), (["length", "stop"], "length"), (["odd", "length"], "length"), (["stop", "odd"], "stop")],
)
async def test_folded_answer_has_the_last_meaningful_finish(reasons: list[str], finish: str) -> None:
    chunks = [ChatChunk.text("Good "), *map(ChatChunk.finish, reasons), ChatChunk.text("day")]
    answer = await fold_chat(again(chunks))
    assert said(answer) == ("Good day", finish)
    assert answer.choices[0].message.tool_calls is UNSET

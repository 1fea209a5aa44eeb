"""A folded stream is the answer it spells out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway import ChatChunk, CompletionUsage
from gateway.errors import UpstreamTruncated
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_response import ChunkChoice, Delta


async def stream(*chunks: ChatChunk) -> AsyncIterator[ChatChunk]:
    for chunk in chunks:
        yield chunk


async def test_text_reasoning_tools_and_usage_are_joined() -> None:
    answer = await fold_chat(
        stream(
            ChatChunk.reasoning("hm "),
            ChatChunk.reasoning("so"),
            ChatChunk.text("Fo"),
            ChatChunk.text("ur"),
            ChatChunk.tool_call(0, id="c1", name="tide", arguments='{"port":'),
            ChatChunk.tool_call(0, arguments='"Brest"}'),
            ChatChunk.tool_call(1, id="c2", name="moon"),
            ChatChunk.finish("tool_calls"),
            ChatChunk.with_usage(CompletionUsage(1, 2, 3)),
        )
    )
    (choice,) = answer.choices
    assert choice.message.content == "Four"
    assert choice.message.reasoning_content == "hm so"
    assert choice.message.tool_calls
    assert [call.id for call in choice.message.tool_calls] == ["c1", "c2"]
    assert [call.function.arguments for call in choice.message.tool_calls if call.function] == [
        '{"port":"Brest"}',
        "{}",
    ]
    assert choice.finish_reason == "tool_calls"
    assert answer.usage == CompletionUsage(1, 2, 3)


async def test_log_probabilities_of_all_chunks_are_kept() -> None:
    def part(token: str) -> ChatChunk:
        logprobs = {"content": [{"token": token, "logprob": -0.1}], "refusal": None}
        return ChatChunk(choices=[ChunkChoice(delta=Delta(content=token), logprobs=logprobs)])

    answer = await fold_chat(stream(part("a"), part("b"), ChatChunk.finish("stop")))
    assert [item["token"] for item in answer.choices[0].logprobs["content"]] == ["a", "b"]


async def test_several_choices_are_sorted_and_renumbered() -> None:
    answer = await fold_chat(
        stream(
            ChatChunk.text("b", index=2),
            ChatChunk.text("a", index=0),
            ChatChunk.finish("stop", index=2),
            ChatChunk.finish("stop", index=0),
        )
    )
    assert [(choice.index, choice.message.content) for choice in answer.choices] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("chunks", [[], [ChatChunk.text("half")]])
async def test_stream_without_a_finish_is_truncated(chunks: list[ChatChunk]) -> None:
    with pytest.raises(UpstreamTruncated):
        await fold_chat(stream(*chunks))

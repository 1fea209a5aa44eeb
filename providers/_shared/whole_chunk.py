"""A whole completion as a chunk, for servers that do not stream."""

from __future__ import annotations

from msgspec import UNSET

from gateway import ChatChunk, ChatCompletion, ChunkChoice, Delta, ToolCallDelta


def chunk_of(answer: ChatCompletion) -> ChatChunk:
    """The completion as a single chunk."""
    chunk = ChatChunk(system_fingerprint=answer.system_fingerprint, usage=answer.usage or UNSET)
    chunk.service_tier = answer.service_tier
    for choice in answer.choices:
        message = choice.message
        delta = Delta(content=message.content, refusal=message.refusal, reasoning_content=message.reasoning_content)
        delta.thinking_blocks = message.thinking_blocks
        if message.tool_calls:
            delta.tool_calls = [
                ToolCallDelta(
                    position, call.id, call.type, call.function, call.custom, extra_content=call.extra_content
                )
                for position, call in enumerate(message.tool_calls)
            ]
        chunk.choices.append(ChunkChoice(choice.index, delta, choice.logprobs, choice.finish_reason))
    return chunk

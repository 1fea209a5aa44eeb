"""What several providers share about answers: usage of several images, and a completion in place of a stream."""

from __future__ import annotations

from msgspec import UNSET

from gateway import ChatCompletion, ChatMessage, Choice, FunctionCall, ImageUsage, ToolCall
from gateway.schemas.images import TokenKinds
from gateway_providers._shared.image_usage import add_usage
from gateway_providers._shared.whole_stream import chunk_of


def test_usage_of_two_images_is_the_sum_of_all_counts() -> None:
    whole = ImageUsage(1, 2, 3, TokenKinds(1, 0), TokenKinds(2, 5))
    add_usage(whole, ImageUsage(10, 20, 30, TokenKinds(7, 3), TokenKinds(4, 16)))
    assert whole == ImageUsage(11, 22, 33, TokenKinds(8, 3), TokenKinds(6, 21))


def test_output_details_that_one_image_lacks_stay_as_they_are() -> None:
    whole = ImageUsage(1, 2, 3, TokenKinds(1, 0))
    add_usage(whole, ImageUsage(10, 20, 30, TokenKinds(7, 3), TokenKinds(4, 16)))
    assert whole.output_tokens_details is UNSET


def test_completion_as_a_chunk_keeps_tier_calls_and_finish_of_each_choice() -> None:
    call = ToolCall("call_1", "function", FunctionCall(name="f", arguments="{}"))
    choices = [
        Choice(0, ChatMessage(content="hello"), finish_reason="stop"),
        Choice(1, ChatMessage(tool_calls=[call]), finish_reason="tool_calls"),
    ]
    chunk = chunk_of(ChatCompletion(choices=choices, service_tier="priority", system_fingerprint="fp"))
    assert (chunk.service_tier, chunk.system_fingerprint, chunk.usage) == ("priority", "fp", UNSET)
    assert [(part.index, part.finish_reason) for part in chunk.choices] == [(0, "stop"), (1, "tool_calls")]
    assert chunk.choices[0].delta.content == "hello"
    fragments = chunk.choices[1].delta.tool_calls
    assert fragments and (fragments[0].index, fragments[0].id, fragments[0].function) == (0, "call_1", call.function)

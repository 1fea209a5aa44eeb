"""The wire's rules for a chat answer, on chunks and answers of every odd shape."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from gateway.encoders.chat import ChatStreamEncoder
from gateway.encoders.chat_completion import delivered_of, encode_completion
from gateway.encoders.chat_form import AnswerForm, service_tier
from gateway.encoders.chat_media import PCM_RATE
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.schemas.chat_response import (
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    Choice,
    ChunkChoice,
    CompletionUsage,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
)
from tests.quick import examples

SHAPE = AnswerForm("chatcmpl-x", 7, "public")


def play(chunks: list[ChatChunk], form: AnswerForm = SHAPE) -> list[dict[str, Any]]:
    """The JSON frames of a whole stream."""
    encoder = ChatStreamEncoder(form)
    text = b"".join(encoder.feed(chunk) for chunk in chunks) + encoder.close()
    assert text.endswith(b"data: [DONE]\n\n")
    frames = text.decode().split("\n\n")[:-2]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def part(delta: Delta, *, index: int = 0, finish: str | None = None) -> ChatChunk:
    return ChatChunk(choices=[ChunkChoice(index=index, delta=delta, finish_reason=finish)])


def test_text_and_finish_in_one_chunk_become_two_frames() -> None:
    frames = play([part(Delta(role="assistant", content="Hi"), finish="stop")])
    assert [frame["choices"][0]["delta"] for frame in frames] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hi"},
        {},
    ]
    assert [frame["choices"][0]["finish_reason"] for frame in frames] == [None, None, "stop"]


def test_repeated_role_is_sent_once() -> None:
    frames = play(
        [part(Delta(role="assistant", content="a")), part(Delta(role="assistant", content="b"), finish="stop")]
    )
    assert sum("role" in frame["choices"][0]["delta"] for frame in frames) == 1


def test_text_after_a_finish_is_sent_and_the_last_finish_is_the_only_one() -> None:
    frames = play([ChatChunk.text("a"), ChatChunk.finish("stop"), ChatChunk.text("b"), ChatChunk.finish("length")])
    assert [frame["choices"][0]["finish_reason"] for frame in frames] == [None, None, None, "length"]
    assert [frame["choices"][0]["delta"].get("content") for frame in frames] == ["", "a", "b", None]


@pytest.mark.parametrize(
    ("reasons", "last"),
    [
        (["length", "stop"], "length"),  # an additional "stop" after each chunk hides no limit
        (["stop", "content_filter", "stop"], "content_filter"),
        (["stop", "odd"], "stop"),
        (["odd", "length"], "length"),
        (["odd"], "stop"),
        ([""], "stop"),
    ],
)
def test_client_sees_the_last_meaningful_finish(reasons: list[str], last: str) -> None:
    frames = play([ChatChunk.text("a"), *map(ChatChunk.finish, reasons)])
    assert [frame["choices"][0]["finish_reason"] for frame in frames] == [None, None, last]


def test_moderation_after_the_finish_is_sent_after_it() -> None:
    verdict = ChatChunk(moderation=Raw(b'{"flagged":false}'))
    frames = play([ChatChunk.text("a"), ChatChunk.finish("stop"), verdict])
    assert [bool(frame.get("moderation")) for frame in frames] == [False, False, False, True]


def test_skipped_choice_without_a_finish_is_truncated() -> None:
    encoder = ChatStreamEncoder(SHAPE)
    encoder.feed(ChatChunk.text("b", index=1))
    encoder.feed(ChatChunk.finish("stop", index=1))
    with pytest.raises(UpstreamTruncated):
        encoder.close()


def test_an_absurd_index_is_an_invalid_response() -> None:
    for index in (-1, 128, 10**9):
        with pytest.raises(UpstreamInvalidResponse):
            ChatStreamEncoder(SHAPE).feed(ChatChunk.text("x", index=index))


def test_an_unknown_finish_is_stop_after_text_and_an_error_without_text() -> None:
    assert play([ChatChunk.text("a"), ChatChunk.finish("eos")])[-1]["choices"][0]["finish_reason"] == "stop"
    with pytest.raises(UpstreamInvalidResponse):
        play([ChatChunk.finish("odd")])


def test_stop_after_a_tool_call_is_tool_calls() -> None:
    frames = play([ChatChunk.tool_call(0, id="c", name="f", arguments="{}"), ChatChunk.finish("stop")])
    assert frames[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_calls_under_one_index_are_split_when_the_id_changes() -> None:
    frames = play(
        [
            ChatChunk.tool_call(0, id="a", name="f", arguments="{}"),
            ChatChunk.tool_call(0, id="b", name="g", arguments="{}"),
            ChatChunk.finish("tool_calls"),
        ]
    )
    calls = [frame["choices"][0]["delta"]["tool_calls"][0] for frame in frames[1:-1]]
    assert [(call["index"], call["id"]) for call in calls] == [(0, "a"), (1, "b")]


def test_missing_and_unusable_call_ids_are_replaced() -> None:
    for bad in (None, "", "with space", "x" * 65, "é"):
        call = ToolCallDelta(index=0, function=FunctionCall(name="f", arguments=""))
        if bad is not None:
            call.id = bad
        frames = play([part(Delta(tool_calls=[call])), ChatChunk.finish("tool_calls")])
        assert re.fullmatch(r"call_[A-Za-z0-9]{24}", frames[1]["choices"][0]["delta"]["tool_calls"][0]["id"])


def test_fragments_without_an_index_continue_the_newest_call() -> None:
    def fragment(**fields: Any) -> ChatChunk:
        return part(Delta(tool_calls=[ToolCallDelta(**fields)]))

    frames = play(
        [
            fragment(id="a", function=FunctionCall(name="f", arguments="")),
            fragment(function=FunctionCall(arguments="1")),
            fragment(id="b", function=FunctionCall(name="g", arguments="")),
            fragment(function=FunctionCall(arguments="2")),
            ChatChunk.finish("tool_calls"),
        ]
    )
    calls = [frame["choices"][0]["delta"]["tool_calls"][0] for frame in frames[1:-1]]
    assert [call["index"] for call in calls] == [0, 0, 1, 1]


def test_legacy_requests_get_function_call() -> None:
    shape = msgspec.structs.replace(SHAPE, legacy_functions=True)
    frames = play([ChatChunk.tool_call(0, id="a", name="f", arguments="{}"), ChatChunk.finish("tool_calls")], shape)
    assert frames[1]["choices"][0]["delta"] == {"function_call": {"name": "f", "arguments": "{}"}}
    assert frames[-1]["choices"][0]["finish_reason"] == "function_call"


def test_legacy_function_call_is_the_first_of_several_and_counts_as_delivered() -> None:
    encoder = ChatStreamEncoder(msgspec.structs.replace(SHAPE, legacy_functions=True))
    frames = encoder.feed(ChatChunk.tool_call(0, id="a", name="f", arguments='{"x":'))
    frames += encoder.feed(ChatChunk.tool_call(1, id="b", name="g", arguments="{}"))
    frames += encoder.feed(ChatChunk.tool_call(0, arguments="12345}"))
    assert b'"g"' not in frames
    assert b"tool_calls" not in frames
    assert encoder.delivered.text_quarter_tokens == len('{"x":12345}')
    assert encoder.content_started


def test_usage_comes_last_and_is_zero_without_a_count() -> None:
    shape = msgspec.structs.replace(SHAPE, include_usage=True)
    frames = play(
        [ChatChunk.with_usage(CompletionUsage(1, 1, 2)), ChatChunk.text("a"), ChatChunk.finish("stop")], shape
    )
    assert frames[-1]["usage"]["total_tokens"] == 2
    assert all(frame["usage"] is None for frame in frames[:-1])


def test_padding_is_sent_only_if_enabled() -> None:
    chunks = [ChatChunk.text("a"), ChatChunk.finish("stop")]
    chunks[0].obfuscation = "upstream"
    kept = play(chunks)[1]["obfuscation"]
    off = play(chunks, msgspec.structs.replace(SHAPE, obfuscation="off"))
    on = play([ChatChunk.text("a"), ChatChunk.finish("stop")], msgspec.structs.replace(SHAPE, obfuscation="on"))
    assert kept == "upstream"
    assert all("obfuscation" not in frame for frame in off)
    assert all(re.fullmatch(r"[A-Za-z0-9]{0,31}", frame["obfuscation"]) for frame in on)


@pytest.mark.holds("prices.md#counts-of-upstreams-7")
def test_delivered_quarter_tokens_count_text_reasoning_and_arguments() -> None:
    encoder = ChatStreamEncoder(SHAPE)
    for chunk in (
        ChatChunk.text("abcd"),
        ChatChunk.reasoning("ef"),
        ChatChunk.tool_call(0, id="c", name="f", arguments="{}"),
    ):
        encoder.feed(chunk)
    assert encoder.delivered.text_quarter_tokens == 8
    assert encoder.content_started


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.one_of(st.none(), st.text(max_size=4)),
            st.one_of(st.none(), st.sampled_from(["stop", "length", "tool_calls", "eos", ""])),
            st.booleans(),
        ),
        max_size=12,
    )
)
@settings(max_examples=examples(200), deadline=None)
def test_any_stream_is_either_complete_or_refused(parts: list[tuple[int, str | None, str | None, bool]]) -> None:
    chunks = []
    for index, text, finish, tool in parts:
        delta = Delta()
        if text is not None:
            delta.content = text
        if tool:
            delta.tool_calls = [ToolCallDelta(index=0, id="c", function=FunctionCall(name="f", arguments=""))]
        chunks.append(part(delta, index=index, finish=finish))
    try:
        frames = play(chunks)
    except (UpstreamTruncated, UpstreamInvalidResponse):
        return
    opened: list[int] = []
    finished: list[int] = []
    for frame in frames:
        (choice,) = frame["choices"]
        if "role" in choice["delta"]:
            opened.append(choice["index"])
        assert choice["index"] in opened
        assert choice["index"] not in finished
        if choice["finish_reason"] is not None:
            finished.append(choice["index"])
    assert opened == sorted(opened)
    assert sorted(finished) == opened


def test_a_whole_answer_is_sorted_and_numbered_and_gets_id_and_time() -> None:
    answer = ChatCompletion(
        id="theirs",
        choices=[
            Choice(index=3, message=ChatMessage(content="b"), finish_reason="stop"),
            Choice(index=1, message=ChatMessage(content="a"), finish_reason="eos"),
        ],
    )
    document = json.loads(encode_completion(answer, SHAPE))
    assert (document["id"], document["created"], document["model"]) == ("chatcmpl-x", 7, "public")
    assert [(choice["index"], choice["message"]["content"]) for choice in document["choices"]] == [(0, "a"), (1, "b")]
    assert document["choices"][0]["finish_reason"] == "stop"


def test_a_whole_answer_without_choices_or_with_an_empty_unfinished_one_is_invalid() -> None:
    for choices in ([], [Choice(message=ChatMessage(content=""), finish_reason=None)]):
        with pytest.raises(UpstreamInvalidResponse):
            encode_completion(ChatCompletion(choices=choices), SHAPE)


def test_empty_tool_lists_are_removed_and_empty_arguments_become_an_object() -> None:
    answer = ChatCompletion(choices=[Choice(message=ChatMessage(content="a", tool_calls=[]), finish_reason="stop")])
    assert "tool_calls" not in json.loads(encode_completion(answer, SHAPE))["choices"][0]["message"]
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments=""))
    answer = ChatCompletion(choices=[Choice(message=ChatMessage(tool_calls=[call]), finish_reason="stop")])
    message = json.loads(encode_completion(answer, SHAPE))["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"
    assert message["content"] is None


def test_units_of_a_whole_answer_match_those_of_the_stream() -> None:
    message = ChatMessage(content="abcd", reasoning_content="ef")
    answer = ChatCompletion(choices=[Choice(message=message)])
    assert delivered_of(answer, audio_rate=PCM_RATE).text_quarter_tokens == 6


class WithoutShortcut(ChatStreamEncoder):
    """Takes the general way with every chunk."""

    def _text(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        return b""


def test_text_fragments_are_encoded_like_any_chunk() -> None:
    said = ("plain", "Überraschung 🎉", 'quotes " and \\ and \n and \0', "\0text\0", "{}", "汉字")
    quick = ChatStreamEncoder(AnswerForm("chatcmpl-x", 1, 'a "model"', include_usage=True, service_tier="auto"))
    slow = WithoutShortcut(AnswerForm("chatcmpl-x", 1, 'a "model"', include_usage=True, service_tier="auto"))
    for fingerprint, tier in ((None, UNSET), ("fp_1", "default"), ("fp_1", "flex"), (None, UNSET)):
        for index in (0, 2, 1):
            for text in said:
                frames = []
                for encoder in (quick, slow):
                    chunk = ChatChunk.text(text, index=index)
                    chunk.system_fingerprint, chunk.service_tier = fingerprint, tier
                    frames.append(encoder.feed(chunk))
                assert frames[0] == frames[1]
    assert quick.delivered == slow.delivered
    assert quick.used_tier == slow.used_tier


def test_chunk_with_more_than_text_is_not_treated_as_a_text_fragment() -> None:
    encoder = ChatStreamEncoder(AnswerForm("chatcmpl-x", 1, "m"))
    encoder.feed(ChatChunk.text("first"))
    odd = ChatChunk.text("second")
    odd.choices[0].delta.refusal = "no"
    odd.choices[0].logprobs = {"content": []}
    frame = encoder.feed(odd)
    assert b'"refusal":"no"' in frame
    assert b'"logprobs":{"content":[]}' in frame


@pytest.mark.parametrize(
    ("used", "asked", "told"),
    [
        (UNSET, None, UNSET),
        (None, "auto", "default"),
        (UNSET, "fast", "priority"),
        (UNSET, "flex", "flex"),
        ("default", "fast", "default"),
    ],
)
def test_answer_names_the_tier_that_was_used_or_else_the_requested_one(used: Any, asked: Any, told: Any) -> None:
    assert service_tier(used, asked) == told

"""Texts that an upstream cuts by UTF-16 units arrive whole, in every dialect: pairs joined, lone surrogates as U+FFFD.

Servers in JavaScript and Java cut so: one chunk ends with `\\ud83d`, and the next one begins with `\\ude42`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from gateway import ChatChunk, CompletionUsage, Event, NativeChunk, TranscriptEvent
from gateway.encoders.chat import ChatStreamEncoder
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.transcripts import TranscriptStreamEncoder
from gateway.schemas.transcription import Transcript
from gateway.testing.transcription_cases import transcription_question
from gateway_providers.anthropic.events import EventReader as MessagesReader
from gateway_providers.anthropic.native_events import NativeReader
from gateway_providers.bedrock.event_stream import Frame
from gateway_providers.bedrock.events import EventReader as ConverseReader
from gateway_providers.cohere.events import EventReader as CohereReader
from gateway_providers.gemini.events import FrameReader
from gateway_providers.gemini.native import NativeFrames
from gateway_providers.openai.chunks import ChunkReader
from gateway_providers.openai.responses import EventReader as ResponsesReader
from gateway_providers.openai.transcription import EventReader as SpokenReader
from tests.quick import examples

TEXT, THOUGHT, ARGUMENTS, SPOKEN = "content", "reasoning_content", "arguments", "transcript"
FIRST, SECOND, LONE = "\ud83d", "\ude42", "\N{REPLACEMENT CHARACTER}"


def units(text: str) -> bytes:
    """Two bytes for each UTF-16 unit."""
    return text.encode("utf-16-le", "surrogatepass")


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[list[str], str]:
    """A text, cut anywhere, and what a client gets of it."""
    alphabet = st.sampled_from(
        ["a", '"', "\\", "\n", "\u00e9", "\u6f22", "\U0001f642", FIRST, SECOND, "\udbff", "\udc00"]
    )
    data = units(draw(st.text(alphabet, min_size=1, max_size=12)))
    cuts = sorted(draw(st.sets(st.integers(1, len(data) // 2), max_size=6)))
    ends = zip([0, *cuts], [*cuts, len(data) // 2], strict=True)
    pieces = [data[2 * start : 2 * end].decode("utf-16-le", "surrogatepass") for start, end in ends if start < end]
    return pieces, data.decode("utf-16-le", "replace")


# Upstreams, by dialect: the chunks of an answer whose channel says these pieces ---------------------------------------


def event(document: dict[str, Any], name: str = "message") -> Event:
    """An event as a server in JavaScript writes it."""
    return Event(json.dumps(document).encode(), name)


def openai(pieces: list[str], channel: str) -> Iterator[ChatChunk | None]:
    """Chunks in the form of OpenAI."""
    reader = ChunkReader()
    for number, piece in enumerate(pieces):
        delta: dict[str, Any] = {"audio": {SPOKEN: piece}} if channel == SPOKEN else {channel: piece}
        if channel == ARGUMENTS:
            head = {"id": "c", "type": "function", "function": {"name": "f", "arguments": piece}}
            delta = {"tool_calls": [{"index": 0, **(head if not number else {"function": {"arguments": piece}})}]}
        yield reader.read(event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
    yield reader.read(event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    yield reader.end()


def messages_events(pieces: list[str], channel: str) -> list[Event]:
    """A message of Anthropic."""
    kind, name = {
        TEXT: ("text", "text"),
        THOUGHT: ("thinking", "thinking"),
        ARGUMENTS: ("input_json", "partial_json"),
    }[channel]
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}} if channel == ARGUMENTS else {"type": kind}
    documents: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": f"{kind}_delta", name: piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return [event(one, one["type"]) for one in documents]


def anthropic(pieces: list[str], channel: str) -> Iterator[ChatChunk | None]:
    """Translated."""
    reader = MessagesReader()
    return map(reader.read, messages_events(pieces, channel))


def gemini_events(pieces: list[str], channel: str) -> list[Event]:
    """Frames of Gemini, whose calls are never cut."""
    thought = {"thought": True} if channel == THOUGHT else {}
    frames: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [{"text": piece, **thought}]}}]} for piece in pieces
    ]
    end: dict[str, Any] = {"candidates": [{"content": {"parts": [{"text": "."}]}, "finishReason": "STOP"}]}
    return [event(one) for one in [*frames, end]]


def gemini(pieces: list[str], channel: str) -> Iterator[ChatChunk | None]:
    """Translated."""
    reader = FrameReader()
    for one in gemini_events(pieces, channel):
        yield from reader.read(one)


def bedrock(pieces: list[str], channel: str) -> Iterator[ChatChunk | None]:
    """Events of ConverseStream."""
    reader = ConverseReader()

    def frame(kind: str, **document: Any) -> Frame:
        return Frame({":event-type": kind, ":message-type": "event"}, json.dumps(document).encode())

    if channel == ARGUMENTS:
        yield from reader.read(frame("contentBlockStart", start={"toolUse": {"toolUseId": "c", "name": "f"}}))
    for piece in pieces:
        delta: dict[str, Any] = {"text": piece}
        if channel == THOUGHT:
            delta = {"reasoningContent": {"text": piece}}
        elif channel == ARGUMENTS:
            delta = {"toolUse": {"input": piece}}
        yield from reader.read(frame("contentBlockDelta", contentBlockIndex=0, delta=delta))
    yield from reader.read(frame("contentBlockStop", contentBlockIndex=0))
    yield from reader.read(frame("messageStop", stopReason="end_turn"))
    yield from reader.read(frame("metadata", usage={"inputTokens": 1, "outputTokens": 2}))


def cohere(pieces: list[str], channel: str) -> Iterator[ChatChunk | None]:
    """Events of Cohere."""
    reader = CohereReader()
    for number, piece in enumerate(pieces):
        kind = "content-delta"
        message: dict[str, Any] = {"content": {"thinking" if channel == THOUGHT else "text": piece}}
        if channel == ARGUMENTS:
            kind = "tool-call-delta" if number else "tool-call-start"
            message = {"tool_calls": {"id": "c", "function": {"name": "f", "arguments": piece}}}
        yield reader.read(event({"type": kind, "index": 0, "delta": {"message": message}}))
    yield reader.read(event({"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}))


def plugin(pieces: list[str], channel: str) -> Iterator[ChatChunk | None]:
    """A third-party provider that yields texts with lone surrogates."""
    for number, piece in enumerate(pieces):
        if channel == ARGUMENTS:
            id, name = (None, None) if number else ("c", "f")
            yield ChatChunk.tool_call(0, id=id, name=name, arguments=piece)
        else:
            yield ChatChunk.text(piece) if channel == TEXT else ChatChunk.reasoning(piece)
    yield ChatChunk.finish("stop")


Upstream = Callable[[list[str], str], Iterator[ChatChunk | None]]
UPSTREAMS: list[Upstream] = [openai, anthropic, gemini, bedrock, cohere, plugin]


def heard(chunks: Iterator[ChatChunk | None], channel: str, encoder: ChatStreamEncoder | None = None) -> str:
    """What a client gets in a channel."""
    encoder = encoder or ChatStreamEncoder(AnswerForm("chatcmpl-x", 7, "public"))
    data = b"".join(encoder.feed(chunk) for chunk in chunks if chunk is not None) + encoder.close()
    found = []
    for frame in data.decode().split("\n\n")[:-2]:
        for choice in json.loads(frame.removeprefix("data: "))["choices"]:
            delta = choice["delta"]
            if channel == ARGUMENTS:
                found += [call["function"]["arguments"] for call in delta.get("tool_calls", ())]
            else:
                found.append((delta.get("audio", {}) if channel == SPOKEN else delta).get(channel) or "")
    return "".join(found)


@pytest.mark.parametrize("upstream", UPSTREAMS, ids=lambda one: one.__name__)
@given(cut=cut_texts(), channel=st.sampled_from([TEXT, THOUGHT, ARGUMENTS]))
@settings(max_examples=examples(300))
def test_text_that_is_cut_anywhere_arrives_whole(upstream: Upstream, cut: tuple[list[str], str], channel: str) -> None:
    pieces, whole = cut
    if upstream is gemini:
        channel = THOUGHT if channel == ARGUMENTS else channel
        whole += "." if channel == TEXT else ""
    assert heard(upstream(pieces, channel), channel) == whole


@given(cut=cut_texts())
@settings(max_examples=examples(300))
def test_transcript_of_a_spoken_answer_that_is_cut_anywhere_arrives_whole(cut: tuple[list[str], str]) -> None:
    pieces, whole = cut
    assert heard(openai(pieces, SPOKEN), SPOKEN) == whole


@given(cut=cut_texts(), channel=st.sampled_from([TEXT, THOUGHT, ARGUMENTS]))
@settings(max_examples=examples(300))
def test_messages_that_are_passed_on_have_whole_characters(cut: tuple[list[str], str], channel: str) -> None:
    pieces, whole = cut
    reader, found, names = NativeReader(), [], []
    for one in messages_events(pieces, channel):
        for chunk in reader.read(one):
            document = msgspec.json.decode(chunk.event)  # refuses surrogates
            names.append(chunk.name)
            delta = document.get("delta", {})
            found += [delta[name] for name in ("text", "thinking", "partial_json") if name in delta]
    assert "".join(found) == whole
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]


@given(cut=cut_texts(), channel=st.sampled_from([TEXT, THOUGHT]))
@settings(max_examples=examples(300))
def test_frames_of_gemini_that_are_passed_on_have_whole_characters(cut: tuple[list[str], str], channel: str) -> None:
    pieces, whole = cut
    reader, found = NativeFrames(FrameReader()), []
    counted = ""
    for one in gemini_events(pieces, channel):
        for chunk in reader.read(one):
            assert isinstance(chunk, NativeChunk)
            for candidate in msgspec.json.decode(chunk.event)["candidates"]:
                found += [
                    part["text"]
                    for part in candidate["content"]["parts"]
                    if part.get("thought", False) is (channel == THOUGHT)
                ]
            counted += "".join(getattr(part.delta, channel) or "" for part in chunk.choices)
    assert "".join(found) == counted == whole + ("." if channel == TEXT else "")


@given(
    cut=cut_texts(),
    name=st.sampled_from(["output_text", "refusal", "reasoning_summary_text", "function_call_arguments"]),
)
@settings(max_examples=examples(300))
def test_responses_that_are_passed_on_have_whole_characters(cut: tuple[list[str], str], name: str) -> None:
    pieces, whole = cut
    kind, reader, found, names = f"response.{name}.delta", ResponsesReader(()), [], []
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    documents: list[dict[str, Any]] = [{"type": kind, **place, "delta": piece} for piece in pieces]
    documents.append({"type": f"response.{name}.done", **place, "text": "".join(pieces)})
    documents.append({"type": "response.completed", "response": {"status": "completed", "output": []}})
    for number, one in enumerate(documents):
        for chunk in reader.read(event({**one, "sequence_number": number}, one["type"])):
            document = msgspec.json.decode(chunk.event)
            names.append(chunk.name)
            found += [document["delta"]] if "delta" in document else []
            assert document.get("text", whole) == whole
    assert "".join(found) == whole
    assert names[-2:] == [f"response.{name}.done", "response.completed"]


@given(cut=cut_texts())
@settings(max_examples=examples(300))
def test_transcript_that_is_cut_anywhere_arrives_whole(cut: tuple[list[str], str]) -> None:
    pieces, whole = cut
    reader, encoder, found = SpokenReader(), TranscriptStreamEncoder(transcription_question(stream="true")), ""
    documents: list[dict[str, Any]] = [{"type": "transcript.text.delta", "delta": piece} for piece in pieces]
    for one in [*documents, {"type": "transcript.text.done", "text": "".join(pieces)}]:
        step = reader.read(event(one))
        assert step is not None
        for frame in encoder.feed(step).decode().split("\n\n")[:-1]:
            found += json.loads(frame.removeprefix("data: "))["delta"]
    assert encoder.transcript is not None
    assert (found, encoder.transcript.text) == (whole, whole)


# Cases --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upstream", UPSTREAMS, ids=lambda one: one.__name__)
def test_what_is_counted_is_the_joined_text(upstream: Upstream) -> None:
    counts = []
    for pieces in (["a", FIRST, SECOND], ["a", FIRST + SECOND]):
        encoder = ChatStreamEncoder(AnswerForm("chatcmpl-x", 7, "public"))
        heard(upstream(pieces, TEXT), TEXT, encoder)
        counts.append(encoder.delivered.text_quarter_tokens)
    assert counts[0] == counts[1] > 0


def test_usage_that_came_before_a_lone_half_was_sent_covers_it() -> None:
    chunks = list(plugin(["a", FIRST], TEXT))
    encoder = ChatStreamEncoder(AnswerForm("chatcmpl-x", 7, "public"))
    last = chunks[-1]
    assert last is not None
    last.usage = CompletionUsage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    assert heard(iter(chunks), TEXT, encoder) == f"a{LONE}"
    assert encoder.counted


def test_half_that_waits_is_sent_before_text_of_another_kind() -> None:
    chunks = [ChatChunk.reasoning(f"r{FIRST}"), ChatChunk.text(f"t{FIRST}"), ChatChunk.reasoning(SECOND)]
    encoder, found = ChatStreamEncoder(AnswerForm("chatcmpl-x", 7, "public")), []
    data = b"".join(map(encoder.feed, [*chunks, ChatChunk.finish("stop")])) + encoder.close()
    for frame in data.decode().split("\n\n")[1:-2]:
        found += list(json.loads(frame.removeprefix("data: "))["choices"][0]["delta"].items())
    assert found == [
        ("reasoning_content", "r"),
        ("reasoning_content", LONE),
        ("content", "t"),
        ("content", LONE),
        ("reasoning_content", LONE),
    ]


def test_texts_of_a_fast_path_with_a_half_are_refused_and_change_nothing() -> None:
    encoder = ChatStreamEncoder(AnswerForm("chatcmpl-x", 7, "public"))
    like = ChatChunk.text("b")
    encoder.feed(ChatChunk.text("a"))
    encoder.feed(like)
    before = encoder.delivered.text_quarter_tokens
    assert encoder.feed_texts(like, ["c", FIRST], float("inf")) == b""
    assert encoder.delivered.text_quarter_tokens == before
    assert encoder.feed_texts(like, ["c"], float("inf"))


def test_other_upstream_that_continues_an_answer_follows_the_last_whole_character() -> None:
    encoder = ChatStreamEncoder(AnswerForm("chatcmpl-x", 7, "public"))
    data = encoder.feed(ChatChunk.text(f"a{FIRST}"))
    encoder.continue_elsewhere("")
    data += encoder.feed(ChatChunk.text("\U0001f642")) + encoder.feed(ChatChunk.finish("stop")) + encoder.close()
    assert LONE not in data.decode() and "\U0001f642" in data.decode()


def test_transcript_that_ends_with_half_a_character_ends_with_its_replacement() -> None:
    encoder = TranscriptStreamEncoder(transcription_question(stream="true"))
    frames = encoder.feed(TranscriptEvent(delta=f"a{FIRST}")) + encoder.feed(
        TranscriptEvent(done=Transcript(f"a{FIRST}"))
    )
    assert f'"delta":"{LONE}"' in frames.decode()
    assert encoder.transcript is not None and encoder.transcript.text == f"a{LONE}"


def test_frame_of_gemini_that_ends_the_answer_inside_a_character_has_its_replacement() -> None:
    end = {"candidates": [{"content": {"parts": [{"text": f"a{FIRST}"}]}, "finishReason": "MAX_TOKENS"}]}
    [chunk] = NativeFrames(FrameReader()).read(event(end))
    assert isinstance(chunk, NativeChunk)
    assert msgspec.json.decode(chunk.event)["candidates"][0]["content"]["parts"] == [{"text": f"a{LONE}"}]


def test_call_with_a_half_in_its_arguments_keeps_its_signature() -> None:
    function = {"name": "f", "arguments": f'{{"a":"{FIRST}'}
    call = {"index": 0, "id": "c", "function": function, "extra_content": {"google": {"thought_signature": "c2ln"}}}
    choice = {"index": 0, "delta": {"tool_calls": [call], "reasoning_details": [{"text": f"r{FIRST}"}]}}
    chunk = ChunkReader().read(event({"choices": [choice]}))
    assert chunk is not None
    delta = chunk.choices[0].delta
    assert delta.tool_calls and isinstance(signature := delta.tool_calls[0].extra_content, Raw)
    assert msgspec.json.decode(signature) == {"google": {"thought_signature": "c2ln"}}
    assert delta.reasoning_details == [{"text": "r"}]


def test_chunk_that_is_half_a_character_makes_no_frame() -> None:
    encoder = ChatStreamEncoder(AnswerForm("chatcmpl-x", 7, "public"))
    encoder.feed(ChatChunk.text("a"))
    assert encoder.feed(ChatChunk.text(FIRST)) == b""
    assert encoder.feed(ChatChunk.text(SECOND)).decode().count("\U0001f642") == 1

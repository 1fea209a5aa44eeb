"""The templates of texts that pass their readers say what a parser and a decoder say, or nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sse import Event, EventParser, FrameTemplate, around
from gateway_providers.anthropic import events as messages
from gateway_providers.gemini import texts as gemini
from gateway_providers.openai import responses_texts as responses
from tests.dialects.word_streams import word_stream

MARK = "~~"
DIALECTS: dict[str, tuple[Any, Any]] = {
    "messages": (FrameTemplate, messages.read_text),
    "responses": (responses.NumberedTemplate, responses.read_text),
    "gemini": (gemini.CountedTemplate, gemini.read_text),
}
every_api = pytest.mark.parametrize("api", DIALECTS)


def frame_of_text(api: str, *, form: str = "", number: int = 1) -> bytes:
    """The frame of a text `MARK`; `number` tells apart what varies."""
    frames = word_stream(api, [MARK] * number, form=form)
    return [frame for frame in frames if b"~~" in frame][number - 1]


def made(api: str, frame: bytes) -> Any:
    [event] = EventParser().feed(frame)
    make, read = DIALECTS[api]
    parts = around(event, MARK, read)
    assert parts is not None
    return make(*parts)


def text_of(event: Event) -> Any:
    document = msgspec.json.decode(event.data)
    if "candidates" in document:
        return document["candidates"][0]["content"]["parts"][0]["text"]
    delta = document["delta"]
    return delta["text"] if isinstance(delta, dict) else delta


TOKENS = st.binary(max_size=12) | st.text(max_size=12).map(lambda text: json.dumps(text)[1:-1].encode())


@every_api
@given(inner=st.lists(TOKENS, min_size=1, max_size=4), number=st.integers(1, 12))
def test_template_reads_the_same_texts_as_parser_and_decoder(api: str, inner: list[bytes], number: int) -> None:
    frame = frame_of_text(api, number=number)
    piece = b"".join(frame.replace(b"~~", token) for token in inner)
    texts = made(api, frame_of_text(api)).texts(piece)
    if texts is not None:
        assert texts == [text_of(event) for event in EventParser().feed(piece)]


@every_api
def test_frames_of_any_number_are_of_one_template(api: str) -> None:
    template = made(api, frame_of_text(api))
    assert template.texts(frame_of_text(api, number=7).replace(b"~~", b"a")) == ["a"]
    together = b"".join(frame_of_text(api, number=number) for number in (2, 3, 4))
    assert template.texts(together) == [MARK] * 3


CHANGES = [
    ("messages", b'"index": 0', b'"index": 1'),
    ("messages", b'"text_delta"', b'"thinking_delta"'),
    ("messages", b"event: content_block_delta", b"event: error"),
    ("responses", b'"output_index": 0', b'"output_index": 1'),
    ("responses", b'"item_id": "msg_1"', b'"item_id": "msg_2"'),
    ("responses", b'"sequence_number": 3', b'"sequence_number": -3'),
    ("responses", b'"sequence_number": 3', b'"sequence_number": 3.5'),
    ("responses", b'"sequence_number": 3', b'"sequence_number": "3"'),
    ("responses", b'"logprobs": []', b'"logprobs": [1]'),
    ("gemini", b'"index": 0', b'"index": 1'),
    ("gemini", b'"role": "model"}', b'"role": "model"}, "finishReason": "STOP"'),
    ("gemini", b'{"text": "~~"}', b'{"text": "~~", "thought": true}'),
    ("gemini", b'{"text": "~~"}', b'{"text": "~~"}, {"text": "~~"}'),
    ("gemini", b'"promptTokenCount"', b'"toolUsePromptTokenCount"'),
    ("gemini", b'"modelVersion"', b'"error"'),
]


@pytest.mark.parametrize(("api", "old", "new"), CHANGES, ids=[f"{api} {new.decode()}" for api, _, new in CHANGES])
def test_frame_that_says_something_else_is_not_of_the_template(api: str, old: bytes, new: bytes) -> None:
    frame = frame_of_text(api)
    assert old in frame
    template = made(api, frame)
    changed = frame.replace(old, new)
    assert template.texts(changed) is None
    assert template.texts(frame + changed) is None
    assert template.texts(frame) == [MARK]


@pytest.mark.parametrize("form", ["two texts", "thoughts between", "other candidates"])
def test_frame_of_gemini_with_more_than_a_text_makes_no_template(form: str) -> None:
    frames = [frame for frame in word_stream("gemini", [MARK] * 5, form=form) if b"~~" in frame]
    [event] = EventParser().feed(frames[3])
    assert around(event, MARK, gemini.read_text) is None

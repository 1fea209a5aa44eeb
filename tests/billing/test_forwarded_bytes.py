"""Every byte that an upstream may get counts in the estimate, whichever field holds it; media count as media."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.token_estimate import chat_prompt
from gateway.schemas.chat_request import decode_chat_request

from .pdfs import file_part, scanned
from .test_token_estimate import image, png

TEXT = "word " * 2_400  # 12 KB
USER = {"role": "user", "content": "hello"}
CALLED = {"role": "assistant", "content": None}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
TOOL = {"type": "function", "function": {"name": "f"}}


def text_tokens(messages: list[Any], *, factor: float = 1.0, escaped: bool = False, **fields: Any) -> int:
    body = json.dumps({"model": "m", "messages": messages, **fields}, ensure_ascii=escaped).encode()
    return chat_prompt(decode_chat_request(body), factor=factor).text


PLACES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "function_call": ([USER, {**CALLED, "function_call": {"name": "f", "arguments": TEXT}}], {}),
    "prediction": ([USER], {"prediction": {"type": "content", "content": TEXT}}),
    "reasoning_content": ([USER, {**CALLED, "content": "a", "reasoning_content": TEXT}], {}),
    "reasoning": ([USER, {**CALLED, "content": "a", "reasoning": TEXT}], {}),
    "reasoning_details": ([USER, {**CALLED, "content": "a", "reasoning_details": [{"text": TEXT}]}], {}),
    "thinking_blocks": ([USER, {**CALLED, "content": "a", "thinking_blocks": [{"thinking": TEXT}]}], {}),
    "refusal": ([USER, {**CALLED, "refusal": TEXT}], {}),
    "extra_content": ([USER, {**CALLED, "tool_calls": [{**CALL, "extra_content": {"x": TEXT}}]}], {}),
    "tool call id": ([USER, {**CALLED, "tool_calls": [{**CALL, "id": TEXT}]}], {}),
    "unknown key of a message": ([{**USER, "notes": TEXT}], {}),
    "unknown key of a part": ([{"role": "user", "content": [{"type": "text", "text": "a", "x": TEXT}]}], {}),
    "unknown field": ([USER], {"documents": [TEXT]}),
    "name of an unknown field": ([USER], {TEXT: 1}),
    "stop": ([USER], {"stop": [TEXT]}),
    "tool choice": ([USER], {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True, "user": TEXT}),
}


@pytest.mark.holds("prices.md#estimates-2")
@pytest.mark.parametrize("place", PLACES)
def test_text_counts_wherever_it_is_forwarded(place: str) -> None:
    messages, fields = PLACES[place]
    assert text_tokens(messages, **fields) >= len(TEXT) / 4
    assert text_tokens(messages, factor=1.5, **fields) >= len(TEXT) / 4 * 1.5


@pytest.mark.holds("prices.md#estimates-2")
@given(
    st.recursive(
        st.text() | st.integers() | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )
)
def test_body_counts_at_least_a_quarter_token_for_each_byte(value: Any) -> None:
    body = json.dumps({"model": "m", "messages": [USER], "x": value}, ensure_ascii=False).encode("utf-8", "replace")
    assert chat_prompt(decode_chat_request(body)).text >= len(body) / 4


@pytest.mark.parametrize(
    "text",
    [
        "漢字" * 500,
        "привет" * 500,
        "😀" * 500,
        "mixed 漢 ж 😀 text" * 100,
        "\\u6f22" * 500,
    ],
)
def test_escaped_text_counts_like_the_same_text_in_utf_8(text: str) -> None:
    plain = text_tokens([{"role": "user", "content": text}])
    escaped = text_tokens([{"role": "user", "content": text}], escaped=True)
    assert plain <= escaped <= plain * 1.01 + 1
    assert plain >= len(json.dumps(text, ensure_ascii=False).encode()) / 4


@pytest.mark.holds("prices.md#estimates-6")
@pytest.mark.parametrize("object_streams", [False, True], ids=["plain objects", "object streams"])
def test_scanned_document_counts_its_pages(*, object_streams: bool) -> None:
    part = file_part(scanned(20, object_streams=object_streams))
    assert text_tokens([{"role": "user", "content": [part]}]) == pytest.approx(20 * 1_500, abs=100)


def test_images_of_an_earlier_answer_count_as_images() -> None:
    pictures = [image(png(1024, 1024) + bytes(400_000))]
    assert text_tokens([USER, {**CALLED, "content": "a", "images": pictures}]) < 100
    assert text_tokens([USER, {**CALLED, "content": "a", "images": {"unknown": TEXT}}]) > len(TEXT) / 4


def test_base64_with_escaped_slashes_counts_as_media() -> None:
    picture = image(png(1024, 1024) + b"\xff" * 400_000)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [picture]}]}).replace("/", "\\/")
    assert chat_prompt(decode_chat_request(body.encode())).text < 100

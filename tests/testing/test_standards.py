"""Answers against the classes of their standards: what is missing, wrong or unknown is found, in every dialect."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.testing.standards import faults_of
from gateway.testing.standards.deviations import DEVIATIONS

Document = dict[str, Any]

CHAT: Document = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi", "refusal": None}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
RESPONSE: Document = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "completed_at": 2,
    "status": "completed",
    "incomplete_details": None,
    "model": "m",
    "previous_response_id": None,
    "instructions": None,
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        }
    ],
    "error": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": None,
    "usage": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}
MESSAGE: Document = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hi", "citations": None}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
GEMINI: Document = {
    "candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    "modelVersion": "m",
    "responseId": "r",
}
WHOLE = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSE,
    "/v1/messages": MESSAGE,
    "/v1beta/models/m:generateContent": GEMINI,
}
CHUNK: Document = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}],
}
EVENT = {
    "/v1/chat/completions": CHUNK,
    "/v1/responses": {"type": "response.completed", "sequence_number": 3, "response": RESPONSE},
    "/v1/messages": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    "/v1beta/models/m:streamGenerateContent": GEMINI,
}
#: What is taken out, and what gets a wrong type.
MEMBER = {
    "/v1/chat/completions": "choices",
    "/v1/responses": "output",
    "/v1/messages": "content",
}


def whole(path: str, document: Document) -> list[str]:
    return faults_of(path, "application/json; charset=UTF-8", json.dumps(document).encode())


def streamed(path: str, document: Document) -> list[str]:
    return faults_of(path, "text/event-stream", b"data: %b\n\n" % json.dumps(document).encode())


either = pytest.mark.parametrize(
    ("read", "path", "document"),
    [
        *((whole, path, document) for path, document in WHOLE.items()),
        *((streamed, path, document) for path, document in EVENT.items()),
    ],
)


@either
def test_answer_that_holds_its_standard_has_no_faults(
    read: Callable[..., list[str]], path: str, document: Document
) -> None:
    assert read(path, document) == []


@either
def test_unknown_member_is_found_unless_it_is_ours(
    read: Callable[..., list[str]], path: str, document: Document
) -> None:
    assert len(read(path, {**document, "planted": 1})) == 1
    assert read(path, {**document, "x_planted": 1}) == []


@pytest.mark.parametrize("path", MEMBER)
def test_missing_member_is_found(path: str) -> None:
    document = {name: value for name, value in WHOLE[path].items() if name != MEMBER[path]}
    assert whole(path, document) == [f"{MEMBER[path]}: Field required"]


@either
def test_wrong_type_is_found(read: Callable[..., list[str]], path: str, document: Document) -> None:
    for name in document:
        if name not in ("metadata", "type"):  # anything may be there; events without a type are of no standard
            assert read(path, {**document, name: [[]]}), name


def test_unknown_member_of_an_inner_object_is_found_by_its_path() -> None:
    document = copy.deepcopy(CHAT)
    document["choices"][0]["message"]["planted"] = 1
    assert whole("/v1/chat/completions", document) == ["choices[0].message.planted: unknown member"]


def test_member_of_a_known_deviation_is_no_fault() -> None:
    document = copy.deepcopy(CHAT)
    document["choices"][0]["message"]["reasoning_content"] = "Hm"
    assert whole("/v1/chat/completions", document) == []


def test_there_are_at_most_ten_deviations() -> None:
    assert len(DEVIATIONS) <= 10

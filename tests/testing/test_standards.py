"""Answers against the classes of their standards: what is missing, wrong or unknown is found, in every dialect."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.schemas.scoring.moderation import CATEGORIES
from gateway.testing.standards import faults_of, read_message
from gateway.testing.standards.deviations import DEVIATIONS
from tests import standards_hook

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
COMPLETION: Document = {
    "id": "c",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "text": "Hi", "logprobs": None, "finish_reason": "stop"}],
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
USAGE: Document = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}
COMPACTION: Document = {
    "id": "resp_1",
    "object": "response.compaction",
    "output": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}],
    "created_at": 1,
    "usage": USAGE,
}
IMAGE_USAGE = {
    "input_tokens": 1,
    "input_tokens_details": {"text_tokens": 1, "image_tokens": 0},
    "output_tokens": 1,
    "total_tokens": 2,
}
SEGMENT: Document = {
    **dict.fromkeys(("id", "seek"), 0),
    **dict.fromkeys(("start", "end", "avg_logprob", "compression_ratio", "no_speech_prob", "temperature"), 0.5),
    "text": "Hi",
    "tokens": [1],
}
VERBOSE: Document = {"duration": 1.5, "language": "en", "text": "Hi", "segments": [SEGMENT]}
SPOKEN: Document = {**{name: SEGMENT[name] for name in ("start", "end", "text")}, "id": "seg_0", "speaker": "A"}
DIARIZED: Document = {
    "duration": 1.5,
    "task": "transcribe",
    "text": "Hi",
    "segments": [{**SPOKEN, "type": "transcript.text.segment"}],
}
MODEL: Document = {"id": "m", "object": "model", "created": 1, "owned_by": "us", "shutdown_date": None}
CLAUDE: Document = {
    "id": "m",
    "type": "model",
    "display_name": "M",
    "created_at": "2026-01-01T00:00:00Z",
    "lifecycle": "active",
}
GOOGLES: Document = {"name": "models/m", "version": "1", "inputTokenLimit": 9, "supportedGenerationMethods": ["embed"]}
TOKENS: Document = {"totalTokens": 1, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1}]}
_SCORED = {
    "flagged": False,
    "categories": dict.fromkeys(CATEGORIES, False),
    "category_scores": dict.fromkeys(CATEGORIES, 0.5),
    "category_applied_input_types": {name: ["text"] for name in CATEGORIES},
}
WHOLE = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/responses": RESPONSE,
    "/v1/responses/compact": COMPACTION,
    "/v1/responses/input_tokens": {"object": "response.input_tokens", "input_tokens": 1},
    "/v1/messages": MESSAGE,
    "/v1/messages/count_tokens": {"input_tokens": 1},
    "/v1beta/models/m:generateContent": GEMINI,
    "/v1/images/generations": {"created": 1, "data": [{"b64_json": "AA=="}], "usage": IMAGE_USAGE},
    "/v1/moderations": {"id": "modr-1", "model": "m", "results": [_SCORED]},
    "/v1/audio/transcriptions": {"text": "Hi", "usage": {"type": "duration", "seconds": 1.5}},
    "/v1/audio/transcriptions?verbose": VERBOSE,
    "/v1/audio/transcriptions?diarized": DIARIZED,
    "/v1/audio/translations": {"text": "Hi"},
    "/v1/audio/translations?verbose": {"task": "translate", "language": "english", "duration": 1.5, "text": "Hi"},
    "/v1/models": {"object": "list", "data": [MODEL]},
    "/v1/models?anthropic": {"data": [CLAUDE], "has_more": False, "first_id": "m", "last_id": "m"},
    "/v1/models/m": MODEL,
    "/v1beta/models": {"models": [GOOGLES]},
    "/v1beta/models/m": GOOGLES,
    "/v1beta/models/m:countTokens": TOKENS,
    "/v1beta/models/m:embedContent": {"embedding": {"values": [0.5]}},
    "/v1beta/models/m:batchEmbedContents": {"embeddings": [{"values": [0.5]}]},
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
    "/v1/completions": {
        **COMPLETION,
        "choices": [{"index": 0, "text": "Hi", "logprobs": None, "finish_reason": None}],
        "usage": None,
    },
    "/v1/responses": {"type": "response.completed", "sequence_number": 3, "response": RESPONSE},
    "/v1/messages": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    "/v1beta/models/m:streamGenerateContent": GEMINI,
    "/v1/images/generations": {
        "type": "image_generation.completed",
        "b64_json": "AA==",
        "created_at": 1,
        "background": "auto",
        "output_format": "png",
        "quality": "low",
        "size": "1024x1024",
        "usage": IMAGE_USAGE,
    },
    "/v1/audio/speech": {
        "type": "speech.audio.done",
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    },
    "/v1/audio/transcriptions": {"type": "transcript.text.delta", "delta": "Hi"},
}
#: What is taken out, and what gets a wrong type.
MEMBER = {
    "/v1/chat/completions": "choices",
    "/v1/completions": "choices",
    "/v1/responses": "output",
    "/v1/responses/compact": "usage",
    "/v1/responses/input_tokens": "input_tokens",
    "/v1/messages": "content",
    "/v1/messages/count_tokens": "input_tokens",
    "/v1/images/generations": "created",
    "/v1/moderations": "results",
    "/v1/audio/transcriptions": "text",
    "/v1/audio/transcriptions?verbose": "text",
    "/v1/audio/transcriptions?diarized": "task",
    "/v1/audio/translations": "text",
    "/v1/audio/translations?verbose": "task",
    "/v1/models": "data",
    "/v1/models?anthropic": "first_id",
    "/v1/models/m": "owned_by",
    "/v1beta/models/m": "version",
    "/v1beta/models/m:countTokens": "totalTokens",
    "/v1beta/models/m:embedContent": "embedding",
    "/v1beta/models/m:batchEmbedContents": "embeddings",
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
        if name not in ("metadata", "type"):  # anything may be there; an event without a type has no class
            assert read(path, {**document, name: [[]]}), name


def test_unknown_member_of_an_inner_object_is_found_by_its_path() -> None:
    document = copy.deepcopy(CHAT)
    document["choices"][0]["message"]["planted"] = 1
    assert whole("/v1/chat/completions", document) == ["choices[0].message.planted: unknown member"]


def test_member_of_a_known_deviation_is_no_fault() -> None:
    document = copy.deepcopy(CHAT)
    document["choices"][0]["message"]["reasoning_content"] = "Hm"
    assert whole("/v1/chat/completions", document) == []


@pytest.mark.parametrize("fault", ["planted", "missing", "type"])
def test_message_of_a_websocket_is_read_as_an_event_or_as_an_error_of_one(fault: str) -> None:
    error = {"type": "invalid_request_error", "code": "invalid_value", "message": "No", "param": None}
    for document, name in (
        (EVENT["/v1/responses"], "sequence_number"),
        ({"type": "error", "status": 400, "error": error}, "error"),
    ):
        assert told(document) == []
        wrong: Document = {**document, "planted": 1} if fault == "planted" else {**document, name: [[]]}
        if fault == "missing":
            del wrong[name]
        assert len(told(wrong)) == 1


def told(document: Document) -> list[str]:
    reading = read_message("/v1/responses", json.dumps(document).encode())
    assert reading is not None
    return reading.faults


def test_all_processes_of_a_run_are_counted_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standards_hook, "ANSWERS", Counter({"chat": 2}))
    monkeypatch.setattr(standards_hook, "EVENTS", Counter({"chat": 5}))
    counts, session = standards_hook.Counts(), SimpleNamespace(config=SimpleNamespace(workeroutput={}))
    counts.pytest_sessionfinish(session)  # type: ignore[arg-type]
    for node in (SimpleNamespace(workeroutput=session.config.workeroutput), SimpleNamespace()):
        counts.pytest_testnodedown(node, None)
    assert standards_hook.summary().endswith("standards: chat 4 (10)")


def test_there_are_at_most_ten_deviations() -> None:
    assert len(DEVIATIONS) <= 10

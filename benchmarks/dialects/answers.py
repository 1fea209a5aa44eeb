"""Answers of upstreams in four dialects: whole, or a stream whose words the caller's chunks are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]

WORD = " word"
TOKENS_IN = 30


def whole(dialect: str) -> bytes:
    """A whole answer of one word."""
    return json.dumps(_WHOLE[dialect]).encode()


def stream(dialect: str, words: int) -> Iterator[bytes]:
    """The events of a stream: what begins it, one for each word, what ends it."""
    begin, word, end = _EVENTS[dialect]
    yield b"".join(map(_event, begin))
    one = _event(word)
    for _ in range(words):
        yield one
    yield b"".join(map(_event, end(words)))


def _event(document: Document) -> bytes:
    name = document.get("type", "")
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def _chat_chunk(delta: Document, finish: str | None = None) -> Document:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _chat_usage(words: int) -> Document:
    return {"prompt_tokens": TOKENS_IN, "completion_tokens": words, "total_tokens": TOKENS_IN + words}


def _chat_end(words: int) -> list[Document]:
    return [_chat_chunk({}, "stop"), {**_chat_chunk({}), "choices": [], "usage": _chat_usage(words)}]


_ITEM = {"id": "msg_1", "type": "message", "role": "assistant"}
_AT = {"item_id": "msg_1", "output_index": 0, "content_index": 0}


def _response(status: str, words: int) -> Document:
    text = {"type": "output_text", "text": WORD * words, "annotations": []}
    usage = {
        "input_tokens": TOKENS_IN,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": words,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": TOKENS_IN + words,
    }
    is_done = status == "completed"
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None, "status": status}
    output = [{**_ITEM, "status": status, "content": [text]}] if is_done else []
    return {**head, "incomplete_details": None, "output": output, "usage": usage if is_done else None}


def _responses_end(words: int) -> list[Document]:
    response = _response("completed", words)
    [item] = response["output"]
    [part] = item["content"]
    return [
        {"type": "response.output_text.done", **_AT, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **_AT, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]


_RESPONSES_BEGIN: list[Document] = [
    {"type": "response.created", "response": _response("in_progress", 0)},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**_ITEM, "status": "in_progress", "content": []},
    },
    {
        "type": "response.content_part.added",
        **_AT,
        "part": {"type": "output_text", "text": "", "annotations": []},
    },
]


def _message(content: list[Document], words: int, stop: str | None) -> Document:
    usage = {"input_tokens": TOKENS_IN, "output_tokens": words}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return {**head, "content": content, "stop_reason": stop, "usage": usage}


def _messages_end(words: int) -> list[Document]:
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": words}},
        {"type": "message_stop"},
    ]


def _candidate(text: str, words: int, finish: str | None = None) -> Document:
    ended = {} if finish is None else {"finishReason": finish}
    usage = {"promptTokenCount": TOKENS_IN, "candidatesTokenCount": words, "totalTokenCount": TOKENS_IN + words}
    content = {"role": "model", "parts": [{"text": text}]}
    return {"candidates": [{"index": 0, "content": content, **ended}], "usageMetadata": usage}


_WHOLE: dict[str, Document] = {
    "chat": {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": WORD}, "finish_reason": "stop"}],
        "usage": _chat_usage(1),
    },
    "responses": _response("completed", 1),
    "messages": _message([{"type": "text", "text": WORD}], 1, "end_turn"),
    "gemini": _candidate(WORD, 1, "STOP"),
}
_EVENTS: dict[str, tuple[list[Document], Document, Any]] = {
    "chat": ([_chat_chunk({"role": "assistant", "content": ""})], _chat_chunk({"content": WORD}), _chat_end),
    "responses": (
        _RESPONSES_BEGIN,
        {"type": "response.output_text.delta", **_AT, "delta": WORD, "logprobs": []},
        _responses_end,
    ),
    "messages": (
        [
            {"type": "message_start", "message": _message([], 1, None)},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        ],
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": WORD}},
        _messages_end,
    ),
    "gemini": ([], _candidate(WORD, 1), lambda words: [_candidate("", words, "STOP")]),
}

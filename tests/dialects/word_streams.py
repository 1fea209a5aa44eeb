"""Streams of four upstreams, a frame for each word, in the forms in which servers write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]

TOKENS_IN = 40
MODELS = ("chat", "responses", "messages", "gemini")


def word_stream(api: str, texts: Sequence[str], *, form: str = "") -> list[bytes]:
    """The frames of a whole answer; `form` is one of `FORMS[api]`."""
    return _WRITERS[api](texts, form)


#: How servers of a dialect differ.
FORMS = {
    "chat": ("",),
    "responses": ("", "number last", "no number", "obfuscation"),
    "messages": ("", "pings", "two blocks"),
    "gemini": ("", "no counts at last", "two texts", "thoughts between", "other candidates", "no counts"),
}


def _frame(document: Document, *, end: str = "\n") -> bytes:
    name = document.get("type")
    head = f"event: {name}{end}" if name else ""
    return f"{head}data: {json.dumps(document)}{end}{end}".encode()


def _chat(texts: Sequence[str], form: str) -> list[bytes]:
    def chunk(delta: Document, finish: str | None = None) -> Document:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    usage = {"prompt_tokens": TOKENS_IN, "completion_tokens": len(texts), "total_tokens": TOKENS_IN + len(texts)}
    documents = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}) for text in texts)]
    documents += [chunk({}, "stop"), {**chunk({}), "choices": [], "usage": usage}]
    return [*map(_frame, documents), b"data: [DONE]\n\n"]


def _responses(texts: Sequence[str], form: str) -> list[bytes]:
    item: Document = {"id": "msg_1", "type": "message", "role": "assistant"}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "".join(texts), "annotations": []}
    done = item | {"status": "completed", "content": [part]}
    usage = {"input_tokens": TOKENS_IN, "output_tokens": len(texts), "total_tokens": TOKENS_IN + len(texts)}
    head = {"id": "resp_up", "object": "response", "created_at": 1, "model": "up", "error": None}
    padding = {"obfuscation": "x9"} if form == "obfuscation" else {}
    documents: list[Document] = [
        {"type": "response.created", "response": head | {"status": "in_progress", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": item | {"status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": text, "logprobs": [], **padding} for text in texts),
        {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": head | {"status": "completed", "output": [done], "usage": usage}},
    ]
    numbers = [{} if form == "no number" else {"sequence_number": number} for number in range(len(documents))]
    if form == "number last":
        return [_frame({**one, **number}) for one, number in zip(documents, numbers, strict=True)]
    return [_frame({"type": one["type"], **number, **one}) for one, number in zip(documents, numbers, strict=True)]


def _messages(texts: Sequence[str], form: str) -> list[bytes]:
    usage = {"input_tokens": TOKENS_IN, "output_tokens": 1}
    head: Document = {
        "id": "msg_up",
        "type": "message",
        "role": "assistant",
        "model": "up",
        "content": [],
        "stop_reason": None,
    }
    documents: list[Document] = [{"type": "message_start", "message": head | {"usage": usage}}]
    half = len(texts) // 2 if form == "two blocks" else len(texts)
    for index, share in enumerate([share for share in (texts[:half], texts[half:]) if share]):
        block = {"type": "text", "text": ""}
        documents.append({"type": "content_block_start", "index": index, "content_block": block})
        for number, text in enumerate(share):
            delta = {"type": "text_delta", "text": text}
            documents.append({"type": "content_block_delta", "index": index, "delta": delta})
            if form == "pings" and number % 4 == 3:
                documents.append({"type": "ping"})
        documents.append({"type": "content_block_stop", "index": index})
    ended: Document = {"stop_reason": "end_turn", "stop_sequence": None}
    documents.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": len(texts)}})
    return [_frame(one) for one in [*documents, {"type": "message_stop"}]]


def _gemini(texts: Sequence[str], form: str) -> list[bytes]:
    documents = []
    for number, text in enumerate(texts, 1):
        parts: list[Document] = [{"text": text}]
        if form == "two texts" and number % 5 == 4:
            parts.append({"text": "+"})
        if form == "thoughts between" and number % 5 == 4:
            parts = [{"text": text, "thought": True}]
        index = number % 3 if form == "other candidates" else 0
        documents.append(_gemini_frame(parts, index, None if form == "no counts" else number))
    for index in range(3 if form == "other candidates" else 1):
        counted = None if form in ("no counts at last", "no counts") else len(texts)
        documents.append(_gemini_frame([{"text": ""}], index, counted, finishReason="STOP"))
    return [_frame(one, end="\r\n") for one in documents]


def _gemini_frame(parts: list[Document], index: int, counted: int | None, **ended: str) -> Document:
    candidate = {"content": {"parts": parts, "role": "model"}, **ended, "index": index}
    counts = {"promptTokenCount": TOKENS_IN, "candidatesTokenCount": counted}
    details = {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": TOKENS_IN}]}
    usage = {} if counted is None else {"usageMetadata": {**counts, "totalTokenCount": TOKENS_IN + counted, **details}}
    return {"candidates": [candidate], **usage, "modelVersion": "gemini-2.5-pro", "responseId": "up-1"}


_WRITERS = {"chat": _chat, "responses": _responses, "messages": _messages, "gemini": _gemini}

"""Answers in each provider's dialect, as pieces with a stage, so that a caller can leave between them.

`pieces(dialect, answer)` is an event stream and `document(dialect, answer)` a whole answer. The stages are "head",
"content", "finish" and "usage"; a dialect that sends its finish and its counts together has only "usage".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from gateway.sse import DONE, encode_data
from tests.providers import cohere_dialect, converse_dialect, messages_dialect
from tests.providers import gemini_upstream as google

#: Upstream names of the models.
MODELS = {
    "openai": "gpt-4o",
    "anthropic": messages_dialect.ADAPTIVE,
    "gemini": "gemini-2.5-flash",
    "bedrock": converse_dialect.PLAIN,
    "cohere": cohere_dialect.MODEL,
    "responses": "gpt-5",
    "completions": "davinci-002",
}
STREAM_TYPES = {"bedrock": converse_dialect.STREAM_TYPE}


class Counts(NamedTuple):
    """What an upstream says it counted; anything may stand for a count."""

    prompt: Any
    completion: Any
    cached: int = 0
    reasoning: int = 0  # part of the completion


class Piece(NamedTuple):
    """Bytes that an upstream writes at once."""

    stage: str
    data: bytes
    words: int = 0


class Answer(Struct, frozen=True):
    """What an upstream says; each word is one token."""

    words: int
    counts: Counts | None
    early: Counts | None = None  # of the prompt, before any content

    @property
    def text(self) -> str:
        """The content."""
        return WORD * self.words


WORD = "word "


def sent_limit(dialect: str, request: dict[str, Any]) -> int | None:
    """The output limit in a request that reached an upstream."""
    fields: list[Any]
    if dialect == "gemini":
        fields = [request.get("generationConfig", {}).get("maxOutputTokens")]
    elif dialect == "bedrock":
        fields = [request.get("inferenceConfig", {}).get("maxTokens")]
    elif dialect == "responses":
        fields = [request.get("max_output_tokens")]
    else:
        fields = [request.get("max_tokens"), request.get("max_completion_tokens")]
    limits = [int(field) for field in fields if field is not None]
    return min(limits) if limits else None


def pieces(dialect: str, answer: Answer) -> list[Piece]:
    """The event stream."""
    return _STREAMS[dialect](answer)


def document(dialect: str, answer: Answer) -> bytes:
    """The whole answer."""
    return msgspec.json.encode(_DOCUMENTS[dialect](answer))


def stream_type(dialect: str) -> str:
    """The media type of a stream."""
    return STREAM_TYPES.get(dialect, "text/event-stream")


# OpenAI --------------------------------------------------------------------------------------------------------------


def _openai_usage(counts: Counts) -> dict[str, Any]:
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


def _openai_stream(answer: Answer) -> list[Piece]:
    def chunk(delta: dict[str, Any] | None, finish: str | None = None, counts: Counts | None = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        body: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        body |= {"choices": choices}
        if counts is not None:
            body["usage"] = _openai_usage(counts)
        return encode_data(msgspec.json.encode(body))

    early = answer.early
    out = [Piece("head", chunk({"role": "assistant", "content": ""}))]
    if early is not None:
        out.append(Piece("head", chunk(None, counts=early)))
    for done in range(1, answer.words + 1):
        so_far = None if early is None else early._replace(completion=done)
        out.append(Piece("content", chunk({"content": WORD}, counts=so_far), 1))
    out.append(Piece("finish", chunk({}, "stop")))
    if answer.counts is not None:
        out.append(Piece("usage", chunk(None, counts=answer.counts)))
    return [*out, Piece("end", DONE)]


def _openai_document(answer: Answer) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": answer.text}, "finish_reason": "stop"}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return head if answer.counts is None else {**head, "usage": _openai_usage(answer.counts)}


# OpenAI's completions ------------------------------------------------------------------------------------------------


def _completions_stream(answer: Answer) -> list[Piece]:
    def chunk(text: str | None, finish: str | None = None, counts: Counts | None = None) -> bytes:
        choices = [] if text is None else [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]
        body: dict[str, Any] = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": choices}
        if counts is not None:
            body["usage"] = _openai_usage(counts)
        return encode_data(msgspec.json.encode(body))

    early = answer.early
    out = [] if early is None else [Piece("head", chunk(None, counts=early))]
    for done in range(1, answer.words + 1):
        so_far = None if early is None else early._replace(completion=done)
        out.append(Piece("content", chunk(WORD, counts=so_far), 1))
    out.append(Piece("finish", chunk("", "stop")))
    if answer.counts is not None:
        out.append(Piece("usage", chunk(None, counts=answer.counts)))
    return [*out, Piece("end", DONE)]


def _completions_document(answer: Answer) -> dict[str, Any]:
    choice = {"index": 0, "text": answer.text, "logprobs": None, "finish_reason": "stop"}
    head = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    return head if answer.counts is None else {**head, "usage": _openai_usage(answer.counts)}


# OpenAI's Responses --------------------------------------------------------------------------------------------------


def _response(answer: Answer, status: str, counts: Counts | None) -> dict[str, Any]:
    part = {"type": "output_text", "text": answer.text, "annotations": []}
    message = {"id": "m", "type": "message", "status": status, "role": "assistant", "content": [part]}
    output = [message] if status == "completed" else []
    body = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": status, "output": output}
    if counts is None:
        return body
    usage = {
        "input_tokens": counts.prompt,
        "output_tokens": counts.completion,
        "input_tokens_details": {"cached_tokens": counts.cached},
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
    }
    return {**body, "usage": usage}


def _responses_stream(answer: Answer) -> list[Piece]:
    number = iter(range(answer.words + 3))

    def event(kind: str, **fields: Any) -> bytes:
        data = msgspec.json.encode({"type": kind, "sequence_number": next(number), **fields})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    added = {"output_index": 0, "item": {"id": "m", "type": "message", "role": "assistant", "content": []}}
    return [
        Piece("head", event("response.created", response=_response(answer, "in_progress", None))),
        Piece("head", event("response.output_item.added", **added)),
        *[Piece("content", event("response.output_text.delta", **place, delta=WORD), 1) for _ in range(answer.words)],
        Piece("usage", event("response.completed", response=_response(answer, "completed", answer.counts))),
    ]


def _responses_document(answer: Answer) -> dict[str, Any]:
    return _response(answer, "completed", answer.counts)


# Anthropic -----------------------------------------------------------------------------------------------------------


def _anthropic_usage(counts: Counts) -> dict[str, Any]:
    fresh = counts.prompt - counts.cached if counts.cached else counts.prompt
    return {"input_tokens": fresh, "cache_read_input_tokens": counts.cached, "output_tokens": counts.completion}


def _anthropic_stream(answer: Answer) -> list[Piece]:
    event = messages_dialect.event
    start: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    early = answer.early
    if early is None and answer.counts is not None:
        early = answer.counts._replace(completion=1)
    if early is not None:
        start["usage"] = _anthropic_usage(early)
    end: dict[str, Any] = {} if answer.counts is None else {"usage": _anthropic_usage(answer.counts)}
    return [
        Piece("head", event("message_start", message=start)),
        Piece("head", event("content_block_start", index=0, content_block={"type": "text", "text": ""})),
        *[
            Piece("content", event("content_block_delta", index=0, delta={"type": "text_delta", "text": WORD}), 1)
            for _ in range(answer.words)
        ],
        Piece("content", event("content_block_stop", index=0)),
        Piece("usage", event("message_delta", delta={"stop_reason": "end_turn"}, **end)),
        Piece("end", event("message_stop")),
    ]


def _anthropic_document(answer: Answer) -> dict[str, Any]:
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    body = {**head, "content": [{"type": "text", "text": answer.text}]}
    return body if answer.counts is None else {**body, "usage": _anthropic_usage(answer.counts)}


# Gemini --------------------------------------------------------------------------------------------------------------


def _gemini_usage(counts: Counts) -> dict[str, Any]:
    visible = counts.completion - counts.reasoning if counts.reasoning else counts.completion
    usage = {"promptTokenCount": counts.prompt, "candidatesTokenCount": visible}
    extra = {"cachedContentTokenCount": counts.cached, "thoughtsTokenCount": counts.reasoning}
    return usage | {name: count for name, count in extra.items() if count}


def _gemini_stream(answer: Answer) -> list[Piece]:
    def frame(*parts: dict[str, Any], finish: str | None = None, usage: dict[str, Any] | None = None) -> bytes:
        body = google.document(google.candidate(*parts, finish=finish), usage=usage)
        return b"data: " + msgspec.json.encode(body) + b"\r\n\r\n"

    out, early = [], answer.early
    if early is not None:
        out.append(Piece("head", frame(google.part(text=""), usage={"promptTokenCount": early.prompt})))
    for done in range(1, answer.words + 1):
        usage = None if early is None else _gemini_usage(early._replace(completion=done))
        out.append(Piece("content", frame(google.part(text=WORD), usage=usage), 1))
    told = None if answer.counts is None else _gemini_usage(answer.counts)
    return [*out, Piece("usage", frame(google.part(text=""), finish="STOP", usage=told))]


def _gemini_document(answer: Answer) -> dict[str, Any]:
    usage = None if answer.counts is None else _gemini_usage(answer.counts)
    return google.document(google.candidate(google.part(text=answer.text), finish="STOP"), usage=usage)


# Bedrock -------------------------------------------------------------------------------------------------------------


def _bedrock_usage(counts: Counts) -> dict[str, Any]:
    fresh = counts.prompt - counts.cached if counts.cached else counts.prompt
    return {"inputTokens": fresh, "cacheReadInputTokens": counts.cached, "outputTokens": counts.completion}


def _bedrock_stream(answer: Answer) -> list[Piece]:
    event = converse_dialect.event
    early = [] if answer.early is None else [Piece("head", event("metadata", usage=_bedrock_usage(answer.early)))]
    last = {} if answer.counts is None else {"usage": _bedrock_usage(answer.counts)}
    return [
        Piece("head", event("messageStart", role="assistant")),
        *early,
        *[
            Piece("content", event("contentBlockDelta", delta={"text": WORD}, contentBlockIndex=0), 1)
            for _ in range(answer.words)
        ],
        Piece("content", event("contentBlockStop", contentBlockIndex=0)),
        Piece("finish", event("messageStop", stopReason="end_turn")),
        Piece("usage", event("metadata", **last, metrics={"latencyMs": 1})),
    ]


def _bedrock_document(answer: Answer) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"text": answer.text}]}
    body = {"output": {"message": message}, "stopReason": "end_turn"}
    return body if answer.counts is None else {**body, "usage": _bedrock_usage(answer.counts)}


# Cohere --------------------------------------------------------------------------------------------------------------


def _cohere_usage(counts: Counts) -> dict[str, Any]:
    tokens = {"input_tokens": counts.prompt, "output_tokens": counts.completion}
    return {"billed_units": tokens, "tokens": tokens, "cached_tokens": counts.cached}


def _cohere_stream(answer: Answer) -> list[Piece]:
    event = cohere_dialect.event
    usage = {} if answer.counts is None else {"usage": _cohere_usage(answer.counts)}
    message = {"role": "assistant", "content": [], "tool_calls": []}
    return [
        Piece("head", event("message-start", id="c", delta={"message": message})),
        Piece("head", event("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}})),
        *[
            Piece("content", event("content-delta", index=0, delta={"message": {"content": {"text": WORD}}}), 1)
            for _ in range(answer.words)
        ],
        Piece("content", event("content-end", index=0)),
        Piece("usage", event("message-end", id="c", delta={"finish_reason": "COMPLETE", **usage})),
        Piece("end", DONE),
    ]


def _cohere_document(answer: Answer) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": answer.text}]}
    body = {"id": "c", "finish_reason": "COMPLETE", "message": message}
    return body if answer.counts is None else {**body, "usage": _cohere_usage(answer.counts)}


_STREAMS: dict[str, Callable[[Answer], list[Piece]]] = {
    "openai": _openai_stream,
    "responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "gemini": _gemini_stream,
    "bedrock": _bedrock_stream,
    "cohere": _cohere_stream,
    "completions": _completions_stream,
}
_DOCUMENTS: dict[str, Callable[[Answer], dict[str, Any]]] = {
    "openai": _openai_document,
    "responses": _responses_document,
    "anthropic": _anthropic_document,
    "gemini": _gemini_document,
    "bedrock": _bedrock_document,
    "cohere": _cohere_document,
    "completions": _completions_document,
}

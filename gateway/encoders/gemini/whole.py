"""Encodes whole answers in the Gemini dialect (docs/api.md, "Google's Gemini API")."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.encoders.chat_completion import normalize_completion
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.gemini.form import (
    FINISH_REASONS,
    candidate,
    function_call,
    logprobs_result,
    media_parts,
    stamped,
    thought_parts,
    usage_metadata,
)
from gateway.schemas.answer_surrogates import decode_whole, encode_whole
from gateway.schemas.chat_response import ChatCompletion, ChatMessage, Choice, CompletionUsage
from gateway.schemas.native_request import NativeCompletion

_table = msgspec.json.Decoder(dict[str, Raw])


def encode_candidates(answer: ChatCompletion, form: AnswerForm, *, thoughts: bool) -> bytes:
    """The JSON document of a whole answer; UpstreamInvalidResponse if it has no content, or no valid end.

    `thoughts`: the caller asked for them.
    """
    normalize_completion(answer, form)
    usage = (answer.usage or CompletionUsage()).public()
    if isinstance(answer, NativeCompletion):
        members = decode_whole(_table, answer.document)
        document: dict[str, Any] = dict(members)
        upstream = msgspec.json.decode(document["usageMetadata"]) if "usageMetadata" in document else None
        document["usageMetadata"] = usage_metadata(usage, upstream)
    else:
        document = {
            "candidates": [_candidate(choice, thoughts=thoughts) for choice in answer.choices],
            "usageMetadata": usage_metadata(usage),
        }
    return encode_whole(stamped(form, document))


def _candidate(choice: Choice, *, thoughts: bool) -> dict[str, Any]:
    reason = FINISH_REASONS.get(choice.finish_reason or "", "OTHER")
    parts = _parts(choice.message, thoughts=thoughts)
    return candidate(choice.index, parts, finishReason=reason, **logprobs_result(choice.logprobs))


def _parts(message: ChatMessage, *, thoughts: bool) -> list[Any]:
    """The parts of an answer: thoughts, text, images, calls."""
    parts = thought_parts(message.reasoning_content, message.thinking_blocks) if thoughts else []
    parts += [{"text": text} for text in (message.content, message.refusal) if text]
    parts += media_parts(message.images)
    for call in message.tool_calls or ():
        name = (call.function.name or "") if call.function else ""
        arguments = (call.function.arguments or "") if call.function else ""
        parts.append(function_call(call.id, name, arguments, call.extra_content))
    return parts

"""Requests and answers in Gemini's own dialect, passed through.

`native_body(request, …)` writes what was sent, with the limits of the `ChatRequest`; what is not in `ACCEPTED` was left
out before. Sharp edge: contents go on byte for byte, but a function call without the signature that a model demands
gets Google's documented bypass: another model may have made the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, structs

from gateway import ChatChunk, ChatCompletion, ChatRequest, Event
from gateway.schemas.native_request import GEMINI, AcceptedFields, NativeChunk, NativeCompletion, NativeRequest

from .contents import BYPASS
from .events import FrameReader

CONFIG, SAFETY = "generationConfig", "safetySettings"
#: What `generateContent` takes, on both of Google's addresses.
ACCEPTED = frozenset({"contents", "systemInstruction", "tools", "toolConfig", SAFETY}) | {
    f"{CONFIG}.{name}"
    for name in (
        "audioTimestamp", "candidateCount", "enableEnhancedCivicAnswers", "frequencyPenalty", "imageConfig", "logprobs",
        "maxOutputTokens", "mediaResolution", "presencePenalty", "responseJsonSchema", "responseLogprobs",
        "responseMimeType", "responseModalities", "responseSchema", "seed", "speechConfig", "stopSequences",
        "temperature", "thinkingConfig", "topK", "topP",
    )
}  # fmt: skip

_encoder = msgspec.json.Encoder()
_list = msgspec.json.Decoder(list[dict[str, Raw]])


def accepted_fields(dialect: str, *, has_safety: bool) -> AcceptedFields | None:
    """What is taken of a request in `dialect`; the operator's safety settings replace those of callers."""
    if dialect != GEMINI:
        return None
    return AcceptedFields(fields=ACCEPTED - {SAFETY} if has_safety else ACCEPTED)


def native_of(request: ChatRequest) -> NativeRequest | None:
    """What was sent, if it was sent in this dialect."""
    native = request.native
    return native if native is not None and native.dialect == GEMINI else None


def native_body(
    request: ChatRequest, native: NativeRequest, *, safety: Sequence[Mapping[str, str]], signatures: bool
) -> bytes:
    """The JSON to send."""
    body: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for name, raw in native.fields.items():
        outer, _, inner = name.partition(".")
        if inner:
            config[inner] = raw
        else:
            body[outer] = raw
    config |= {
        "maxOutputTokens": request.max_output,
        "candidateCount": request.choices if request.choices > 1 else None,
    }
    body[CONFIG] = {name: value for name, value in config.items() if value is not None}
    if safety:
        body[SAFETY] = safety
    if signatures:
        body["contents"] = _signed(body["contents"])
    return _encoder.encode({name: value for name, value in body.items() if value != {}})


def native_completion(completion: ChatCompletion, document: bytes) -> ChatCompletion:
    """The completion with the document that it was read from, if that is one."""
    if document.lstrip()[:1] != b"{":
        return completion
    return NativeCompletion(document=document, **structs.asdict(completion))


def native_chunks(reader: FrameReader, event: Event) -> list[ChatChunk]:
    """The chunk of one frame, with the frame."""
    chunks = reader.read(event)
    if event.data[:1] != b"{":
        return chunks
    choices = [part for chunk in chunks for part in chunk.choices]
    usage = chunks[-1].usage if chunks else msgspec.UNSET
    return [NativeChunk(choices=choices, usage=usage, event=event.data, name="")]


def _signed(raw: Raw) -> Raw:
    """The contents with the bypass at the first function call of each turn that has no signature."""
    text = bytes(raw)
    if b'"functionCall"' not in text:
        return raw
    contents = _list.decode(text if text[:1] == b"[" else b"[%b]" % text)
    changed = False
    for content in contents:
        parts = bytes(content.get("parts", b"[]"))
        found = _list.decode(parts if parts[:1] == b"[" else b"[%b]" % parts)
        first = next((part for part in found if "functionCall" in part), None)
        if first is not None and "thoughtSignature" not in first:
            first["thoughtSignature"] = Raw(_encoder.encode(BYPASS))
            content["parts"] = Raw(_encoder.encode(found))
            changed = True
    return Raw(_encoder.encode(contents)) if changed else raw

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

from .._shared.whole_events import Document, PlacedText, WholeEvents
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


class NativeFrames:
    """Reads the frames of one stream, and passes each on."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self._whole: WholeEvents | None = None  # while a high surrogate waits for its low surrogate

    def read(self, event: Event) -> list[ChatChunk]:
        """The chunk of one frame, with the frame."""
        if self._whole is None and (chunks := self._reader.read_usual(event)) is not None:
            return _native(chunks, event)
        self._whole = whole = self._whole or WholeEvents(_texts_of, _alone)
        found = [chunk for one in whole.read(event) for chunk in _native(self._reader.read(one), one)]
        if not whole.are_waiting:
            self._whole = None
        return found


def _native(chunks: list[ChatChunk], event: Event) -> list[ChatChunk]:
    if event.data[:1] != b"{":
        return chunks
    choices = [part for chunk in chunks for part in chunk.choices]
    usage = chunks[-1].usage if chunks else msgspec.UNSET
    return [NativeChunk(choices=choices, usage=usage, event=event.data, name="")]


def _texts_of(document: Document) -> list[PlacedText]:
    """The texts of a frame, which go on in the next frame; nothing follows those before another part or a finish."""
    found: list[PlacedText] = []
    candidates = document.get("candidates")
    for number, one in enumerate(candidates if isinstance(candidates, list) else ()):
        content = one.get("content") if isinstance(one, dict) else None
        parts = content.get("parts") if isinstance(content, dict) else None
        before: PlacedText | None = None
        for part in parts if isinstance(parts, list) else ():
            text = None
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                index = one.get("index", number)
                text = PlacedText((str(index), part.get("thought") is True), part, "text", owner=index)
                found.append(text)
            if before is not None and (text is None or text.place != before.place):
                before.ends = True
            before = text
        if before is not None and one.get("finishReason"):
            before.ends = True
    return found


def _alone(document: Document, text: PlacedText) -> Document:
    part = {name: text.holder[name] for name in ("text", "thought") if name in text.holder}
    return {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": text.owner}]}


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

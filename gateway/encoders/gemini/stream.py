"""Encodes streams in the Gemini dialect (docs/api.md, "Google's Gemini API").

Each frame is an answer that has what is new. A function call is one part, so it is sent when it is complete. The frames
of an upstream of the same dialect are passed on as they came, except for the id, the model, the usage and the finish
reasons: these wait for the end, so that no cut answer looks complete.
Sharp edge: after another upstream has continued an answer, the frames of that one are not passed on, but written anew.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway.encoders.answer_encoder import CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.gemini.calls import OpenCalls
from gateway.encoders.gemini.form import (
    FINISH_REASONS,
    Framing,
    candidate,
    logprobs_result,
    media_parts,
    stamped,
    thought_parts,
    usage_metadata,
)
from gateway.encoders.templated_encoder import PLACEHOLDER, TemplatedEncoder, encoded_alone
from gateway.schemas.chat_response import ChatChunk, ChunkChoice
from gateway.schemas.native_request import NativeChunk

#: Members of a candidate that say how it ended.
END = ("finishReason", "finishMessage")
#: Parts that are neither text, nor a call, nor a medium. Within a text their quotation marks are escaped.
RUN_CODE, CODE_RESULT = b'"executableCode"', b'"codeExecutionResult"'

_table = msgspec.json.Decoder(dict[str, Raw])
_candidates = msgspec.json.Decoder(list[dict[str, Raw]])
_encode = msgspec.json.Encoder().encode
_number = msgspec.json.Decoder(int)


class GeminiStreamEncoder(TemplatedEncoder):
    """Turns one provider stream into frames of the Gemini dialect."""

    __slots__ = (
        "_calls",
        "_ends",
        "_has_other",
        "_is_native",
        "_rest",
        "_thought",
        "_thoughts",
        "_usage",
        "framing",
    )

    def __init__(self, form: AnswerForm, *, framing: Framing, thoughts: bool, count: CountAnswer | None = None) -> None:
        super().__init__(form, count=count)
        self.framing = framing
        self._thoughts = thoughts  # whether the caller asked for them
        self._thought = False  # some were sent
        self._calls = OpenCalls()
        self._is_native = False
        self._ends: dict[int, dict[str, Raw]] = {}  # how candidates of the upstream ended
        self._rest: dict[str, Raw] = {}  # the upstream's document without candidates, which ends the stream
        self._usage: Raw | None = None  # the upstream's last one
        self._has_other = False  # a frame that was passed on has code that the upstream ran

    @property
    def continues_native(self) -> bool:
        return not self._has_other

    def feed(self, chunk: ChatChunk) -> bytes:
        """The frames of `chunk`; may be empty."""
        if chunk.usage is not UNSET and chunk.usage is not None:
            return self._feed_counted(chunk)
        self._plain = None
        if isinstance(chunk, NativeChunk) and not self.continued:
            self._is_native = True
            self._feed_parts(chunk)  # counts it; its parts have no frames of their own
            self.offer_template(chunk)
            return self._event(chunk.event)
        self._is_native = False
        choices = chunk.choices
        if self._surrogates is None and len(choices) == 1 and (frame := self._text(chunk, choices[0])):
            return frame
        return self._feed_parts(chunk) if choices else b""

    def part_frames(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        if self._is_native:
            return b""
        delta, index = part.delta, part.index
        parts: list[Any] = []
        if self._thoughts:
            parts += thought_parts(delta.reasoning_content, delta.thinking_blocks, is_shown=self._thought)
            self._thought = self._thought or bool(delta.reasoning_content)
        parts += [{"text": text} for text in (delta.content, delta.refusal) if text]
        parts += media_parts(delta.images)
        if parts:
            parts = self._calls.take(index) + parts
        for fragment in delta.tool_calls or ():
            parts += self._calls.add(index, fragment)
        if not parts and part.logprobs is None:
            return b""
        return self._frame(candidate(index, parts, **logprobs_result(part.logprobs)))

    def last_frames(self, finishes: list[ChunkChoice]) -> bytes:
        document: dict[str, Any] = {}
        if self._rest and not self._ends and not self.continued:
            document |= self._rest  # a prompt that was blocked has no candidates
        else:
            document["candidates"] = [self._finished(finish) for finish in finishes]
        upstream = msgspec.json.decode(self._usage) if self._usage is not None and not self.continued else None
        document["usageMetadata"] = usage_metadata(self.counted_usage(), upstream)
        return self.framing.frame(stamped(self.form, document)) + self.framing.end()

    def _finished(self, finish: ChunkChoice) -> dict[str, Any]:
        """The last part of a candidate."""
        index = finish.index
        parts = self._calls.take(index) or [{"text": ""}]  # as Google ends a stream
        end = self._ends.get(index)
        if end is not None and not self.continued:
            return candidate(index, parts, **end)
        return candidate(index, parts, finishReason=FINISH_REASONS.get(finish.finish_reason or "", "OTHER"))

    def _frame(self, one: dict[str, Any]) -> bytes:
        return self.framing.frame(stamped(self.form, {"candidates": [one]}))

    # Text ------------------------------------------------------------------------------------------------------------

    def _text(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        """The frame of a chunk that has only text for the open first candidate; empty for any other chunk."""
        delta = part.delta
        text = delta.content
        if type(text) is not str or not text or part.index or not self._choices or not self._choices[0].opened:
            return b""
        if part.finish_reason is not None or part.logprobs is not None or self._calls.are_open:
            return b""
        encoded = encoded_alone(delta, text)
        if not encoded:
            return b""
        if not self.has_own_template:
            if self.framing.is_array and not self.framing.begun:
                return b""
            self.use_template(self._frame(candidate(0, [{"text": PLACEHOLDER}])))
        return self.text_frame(chunk, text, encoded)

    # Frames of an upstream of this dialect ---------------------------------------------------------------------------

    def native_text_frame(self, chunk: NativeChunk) -> bytes:
        document = _table.decode(chunk.event)
        [one] = _candidates.decode(document["candidates"])
        content = _table.decode(one["content"])
        parts = _candidates.decode(content["parts"])
        if len(parts) != 1 or parts[0].keys() != {"text"} or one.keys() - {"content", "index"}:
            return b""
        content["parts"] = Raw(_encode([{"text": PLACEHOLDER}]))
        document["candidates"] = Raw(_encode([{**one, "content": content}]))
        return self._event(_encode(document))

    def _event(self, event: bytes) -> bytes:
        document: dict[str, Any] = dict(_table.decode(event))
        self._has_other = self._has_other or RUN_CODE in event or CODE_RESULT in event
        self._usage = document.pop("usageMetadata", None) or self._usage
        found = document.pop("candidates", None)
        if found is None:
            self._rest |= document
            return b""
        sent = []
        for place, one in enumerate(_candidates.decode(found)):
            end = {name: one.pop(name) for name in END if name in one}
            if end:
                self._ends[_number.decode(one["index"]) if "index" in one else place] = end
            if one.keys() - {"index"}:
                sent.append(one)
        return self.framing.frame(stamped(self.form, {**document, "candidates": sent})) if sent else b""

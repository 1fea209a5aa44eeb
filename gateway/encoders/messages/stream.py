"""Encodes streams in Anthropic's dialect (docs/api.md, "POST /v1/messages").

The events of an upstream of the same dialect are passed on as they came, except for the id, the model and the usage.
Its `message_delta` and `message_stop` wait for the end, so that no cut answer looks complete. Other chunks are written
as blocks.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway.billing.delivered import Delivered
from gateway.billing.usage import is_possible
from gateway.encoders.answer_encoder import CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.messages.blocks import TEXT, THINKING, ContentBlocks
from gateway.encoders.messages.form import STOP_REASONS, frame, message_id, messages_usage, with_kept
from gateway.encoders.templated_encoder import PLACEHOLDER, TemplatedEncoder, encoded_alone
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, CompletionUsage
from gateway.schemas.native_request import NativeChunk


class _Started(msgspec.Struct):
    """What is replaced in a `message_start`."""

    message: dict[str, Raw]


class _Block(msgspec.Struct):
    type: str = ""


class _BlockStart(msgspec.Struct):
    content_block: _Block


class _Ended(msgspec.Struct):
    """What is read of a `message_delta`."""

    usage: Any = None


_table = msgspec.json.Decoder(dict[str, Raw])
_started = msgspec.json.Decoder(_Started)
_block_start = msgspec.json.Decoder(_BlockStart)
_ended = msgspec.json.Decoder(_Ended)


_encode = msgspec.json.Encoder().encode


class MessagesStreamEncoder(TemplatedEncoder):
    """Turns one provider stream into events of the Messages dialect."""

    __slots__ = ("_blocks", "_end", "_first_usage", "_has_other", "_index", "_is_begun", "_is_native")

    def __init__(self, form: AnswerForm, *, model: str = "", count: CountAnswer | None = None) -> None:
        super().__init__(form, count=count)
        self._blocks = ContentBlocks((model, form.model))  # `model` as it was requested
        self._is_begun = self._is_native = False
        self._first_usage: CompletionUsage | None = None  # of the chunk with which the answer begins
        self._end: bytes | None = None  # the upstream's `message_delta`
        self._index = -1  # of the block of the template
        self._has_other = False  # an upstream of this dialect has sent a block that is no text and no thinking

    @property
    def continues_native(self) -> bool:
        return not self._has_other

    def feed(self, chunk: ChatChunk) -> bytes:
        """The frames of `chunk`; may be empty."""
        if chunk.usage is not UNSET and chunk.usage is not None:
            if not self._is_begun and is_possible(chunk.usage):
                self._first_usage = chunk.usage
            return self._feed_counted(chunk)
        self._plain = None
        if isinstance(chunk, NativeChunk):
            self._is_native = True
            self._feed_parts(chunk)  # counts it; its parts have no frames of their own
            self.offer_template(chunk)
            return self._event(chunk)
        self._is_native = False
        choices = chunk.choices
        if self._surrogates is None and len(choices) == 1 and (frames := self._text(chunk, choices[0])):
            return frames
        return self._feed_parts(chunk) if choices else b""

    def part_frames(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        if self._is_native or part.index:
            return b""
        delta, blocks = part.delta, self._blocks
        frames = b"" if self._is_begun else self._begin()
        if delta.reasoning_content:
            frames += blocks.thinking(delta.reasoning_content)
        if delta.thinking_blocks is not UNSET:
            frames += self._thoughts(delta.thinking_blocks)
        for text in (delta.content, delta.refusal):
            if text:
                frames += blocks.text(text)
        if delta.tool_calls:
            frames += b"".join(map(blocks.call, delta.tool_calls))
        return frames

    def last_frames(self, finishes: list[ChunkChoice]) -> bytes:
        usage = messages_usage(self.counted_usage())
        usage.pop("cache_creation", None)  # only a `message_start` and a whole answer have a place for it
        if self._end is not None:
            ended = _ended.decode(self._end)
            document: Any = {**_table.decode(self._end), "usage": with_kept(usage, ended.usage)}
        else:
            reason = STOP_REASONS.get(finishes[0].finish_reason or "", "end_turn")
            document = {
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": usage,
            }
        frames = (b"" if self._is_begun else self._begin()) + self._blocks.close()
        return frames + frame("message_delta", document) + frame("message_stop", {"type": "message_stop"})

    # Text ------------------------------------------------------------------------------------------------------------

    def _text(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        """The frame of a chunk that has only text for the open block; empty for any other chunk."""
        delta = part.delta
        text = delta.content
        if type(text) is not str or not text or part.index or self._blocks.kind != TEXT:
            return b""
        if part.finish_reason is not None or part.logprobs is not None or delta.role is not UNSET:
            return b""
        encoded = encoded_alone(delta, text)
        if not encoded:
            return b""
        if self._index != self._blocks.index or not self.has_own_template:
            self._make_template()
        return self.text_frame(chunk, text, encoded)

    def _make_template(self) -> None:
        self._index = self._blocks.index
        self.use_template(self._blocks.text(PLACEHOLDER))

    # The beginning ---------------------------------------------------------------------------------------------------

    def _begin(self) -> bytes:
        self._is_begun = True
        document: dict[str, Any] = {
            "id": message_id(self.form),
            "type": "message",
            "role": "assistant",
            "model": self.form.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage_at_start(),
        }
        return frame("message_start", {"type": "message_start", "message": document})

    def _usage_at_start(self) -> dict[str, Any]:
        """The prompt as the upstream has counted it, or else as it was estimated."""
        usage = self._first_usage or CompletionUsage()
        if self._first_usage is None and self._count is not None:
            usage = self._count(None, Delivered(), False)
        return {**messages_usage(usage.public()), "output_tokens": 0}

    def _thoughts(self, raw: Raw) -> bytes:
        """The frames of thinking with its signature, which some upstreams send behind it, and some after the answer."""
        blocks = msgspec.json.decode(raw)
        last = blocks[-1] if isinstance(blocks, list) and blocks and isinstance(blocks[-1], dict) else {}
        if self._blocks.kind == THINKING and last.get("signature"):
            return self._blocks.signature(str(last["signature"]))
        return b""

    # Events of an upstream of this dialect ---------------------------------------------------------------------------

    def _event(self, chunk: NativeChunk) -> bytes:
        name = chunk.name
        if name == "message_start":
            return self._native_start(chunk.event)
        if name == "message_delta":
            self._end = chunk.event
            return b""
        if name == "message_stop":
            return b""
        frames = b"" if self._is_begun else self._begin()
        if name == "content_block_start":
            kind = _block_start.decode(chunk.event).content_block.type
            self._has_other = self._has_other or kind not in (TEXT, THINKING)
            self._blocks.started(kind)
        elif name == "content_block_stop":
            self._blocks.stopped()
        return frames + _event_frame(name, chunk.event)

    def native_text_frame(self, chunk: NativeChunk) -> bytes:
        if chunk.name != "content_block_delta":
            return b""
        event = _table.decode(chunk.event)
        event["delta"] = Raw(_encode({**_table.decode(event["delta"]), "text": PLACEHOLDER}))
        return _event_frame(chunk.name, _encode(event))

    def _native_start(self, event: bytes) -> bytes:
        if self._is_begun:
            return b""
        self._is_begun = True
        message: dict[str, Any] = dict(_started.decode(event).message)
        upstream = msgspec.json.decode(message["usage"]) if "usage" in message else None
        message |= {"id": message_id(self.form), "model": self.form.model}
        message["usage"] = with_kept(self._usage_at_start(), upstream)
        return frame("message_start", {**_table.decode(event), "message": message})


def _event_frame(name: str, event: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), event)

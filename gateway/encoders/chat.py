"""Encodes chat streams by the rules of the wire format (docs/api.md, "POST /v1/chat/completions").

`ChatStreamEncoder` takes a provider's chunks and returns the frames of a valid stream: one id, created and model, a
role chunk per choice, tool calls numbered from 0 and named once, one finish per choice, and usage last, if requested.
It counts what was delivered, for charges without upstream usage.
Sharp edge: the bytes of `feed` must be sent in order; `close` raises for an incomplete stream.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from gateway.billing.usage import text_units
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm, service_tier
from gateway.ids import padding
from gateway.schemas.answer_surrogates import encode_whole
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, Delta
from gateway.sse import DONE, encode_data

_encoder = msgspec.json.Encoder()


class _FrameTemplate(msgspec.Struct, frozen=True):
    """A frame without its text, and the values it depends on."""

    index: int
    origin: tuple[str | None, str | UnsetType | None]
    before: bytes
    after: bytes


#: Replaces the text while a template is made; no id, model or fingerprint is equal to it.
PLACEHOLDER = "\0text\0"


class ChatStreamEncoder(AnswerEncoder):
    """Turns one provider stream into frames of OpenAI's chat dialect."""

    __slots__ = ("_plain", "_template", "_verdict")

    def __init__(self, form: AnswerForm, request: ChatRequest | None = None, count: CountAnswer | None = None) -> None:
        super().__init__(form, count=count)
        self._template: _FrameTemplate | None = None
        self._verdict = b""  # the frame of a moderation after the last content
        self._plain: ChatChunk | None = None  # the last chunk, if its frame was made from the template

    def feed(self, chunk: ChatChunk) -> bytes:
        """The frames of `chunk`; may be empty."""
        if chunk.usage is not UNSET and chunk.usage is not None:
            return self._feed_counted(chunk)
        choices = chunk.choices
        if not choices:
            return self._moderation(chunk)
        if self._surrogates is None and len(choices) == 1 and (frame := self._text(chunk, choices[0])):
            return frame
        self._plain = None
        return self._feed_parts(chunk)

    def last_frames(self, finishes: list[ChunkChoice]) -> bytes:
        frames = [self.part_frames(self._last, finish) for finish in finishes]
        frames.append(self._verdict)
        if self.form.include_usage:
            frames.append(self._usage_frame())
        frames.append(DONE)
        return b"".join(frames)

    def _usage_frame(self) -> bytes:
        before = self._last
        last = self._stamp(
            ChatChunk(system_fingerprint=before.system_fingerprint, service_tier=before.service_tier), []
        )
        last.usage = self.counted_usage()
        return encode_data(_encoder.encode(last))

    def _text(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        """The frame of a chunk that has only a fragment of text for an open choice; empty for any other chunk.

        Such a frame differs from the last one only in its text, so it is made from the template. This takes two fifths
        of the time of the general way.
        """
        delta, index = part.delta, part.index
        text = delta.content
        if (
            type(text) is not str
            or not text
            or not 0 <= index < len(self._choices)
            or part.finish_reason is not None
            or part.logprobs is not None
            or chunk.obfuscation is not UNSET
            or self.form.obfuscation == "on"
        ):
            return b""
        choice = self._choices[index]
        try:
            encoded = _encoder.encode(text)
        except UnicodeEncodeError:  # a lone surrogate
            return b""
        if not choice.opened or _encoder.encode(delta) != b'{"content":%b}' % encoded:
            return b""
        template = self._template
        if (
            template is None
            or template.index != index
            or template.origin != (chunk.system_fingerprint, chunk.service_tier)
        ):
            template = self._template = self._make_template(chunk, index)
        self._last = self._plain = chunk
        choice.has_content = self.content_started = True
        self.delivered.text_quarter_tokens += len(text) if text.isascii() else text_units(text)
        return b"%b%b%b" % (template.before, encoded, template.after)

    def feed_texts(self, sample: ChatChunk, texts: list[str], below: float) -> bytes:
        template = self._template
        if sample is not self._plain or template is None or "" in texts:
            return b""
        delivered = self.delivered
        quarters = delivered.text_quarter_tokens
        for text in texts:
            quarters += len(text) if text.isascii() else text_units(text)
        if quarters >= below:
            return b""
        try:
            if len(texts) == 1:
                frames = b"%b%b%b" % (template.before, _encoder.encode(texts[0]), template.after)
            else:
                before, after = template.before, template.after
                frames = b"".join([b"%b%b%b" % (before, _encoder.encode(text), after) for text in texts])
        except UnicodeEncodeError:  # a lone surrogate
            return b""
        self._last, delivered.text_quarter_tokens = sample, quarters  # after the encoding, which may raise
        return frames

    def _make_template(self, chunk: ChatChunk, index: int) -> _FrameTemplate:
        frame = self.part_frames(chunk, ChunkChoice(index, Delta(content=PLACEHOLDER)))
        before, _, after = frame.partition(_encoder.encode(PLACEHOLDER))
        return _FrameTemplate(index, (chunk.system_fingerprint, chunk.service_tier), before, after)

    def part_frames(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        out = self._stamp(chunk, [part])
        try:
            return encode_data(_encoder.encode(out))
        except UnicodeEncodeError:  # a lone surrogate in what is not counted, such as log probabilities
            return encode_data(encode_whole(out))

    def _stamp(self, chunk: ChatChunk, choices: list[ChunkChoice]) -> ChatChunk:
        form = self.form
        self._last = chunk
        return ChatChunk(
            form.id,
            "chat.completion.chunk",
            form.created,
            form.model,
            choices,
            chunk.system_fingerprint,
            service_tier(chunk.service_tier, form.service_tier),
            None if form.include_usage else UNSET,
            UNSET,
            self._padding(chunk),
        )

    def _padding(self, chunk: ChatChunk) -> str | UnsetType:
        kind = self.form.obfuscation
        if kind == "upstream" or (kind == "on" and chunk.obfuscation is not UNSET):
            return chunk.obfuscation
        return padding() if kind == "on" else UNSET

    def _moderation(self, chunk: ChatChunk) -> bytes:
        if chunk.moderation is UNSET:
            return b""  # only usage, or the empty first chunk of some hosts
        out = self._stamp(chunk, [])
        out.moderation = chunk.moderation
        frame = encode_data(_encoder.encode(out))
        if not self.finished:
            return frame
        self._verdict = frame  # it follows the finishes
        return b""

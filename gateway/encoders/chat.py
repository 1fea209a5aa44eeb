"""Encodes chat streams by the rules of the wire format (docs/api.md, "POST /v1/chat/completions").

`ChatStreamEncoder` takes a provider's chunks and returns the frames of a valid stream: one id, created and model, a
role chunk per choice, tool calls numbered from 0 and named once, one finish per choice, and usage last, if requested.
It counts what was delivered, for charges without upstream usage.
Sharp edge: the bytes of `feed` must be sent in order; `close` raises for an incomplete stream.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import msgspec
from msgspec import UNSET, UnsetType

from gateway.billing.delivered import Delivered
from gateway.billing.usage import is_possible, text_units
from gateway.encoders.chat_choice import ChoiceEncoder
from gateway.encoders.chat_form import AnswerForm, service_tier
from gateway.encoders.chat_media import count_message
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.ids import padding
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, CompletionUsage, Delta
from gateway.sse import DONE, encode_data

_encoder = msgspec.json.Encoder()

#: The usage for the client, from the upstream's count, our own, and whether the first covers the whole answer.
CountAnswer = Callable[[CompletionUsage | None, Delivered, bool], CompletionUsage]


class _FrameTemplate(msgspec.Struct, frozen=True):
    """A frame without its text, and the values it depends on."""

    index: int
    origin: tuple[str | None, str | UnsetType | None]
    before: bytes
    after: bytes


#: Replaces the text while a template is made; no id, model or fingerprint is equal to it.
PLACEHOLDER = "\0text\0"


class ChatStreamEncoder:
    """Turns one provider stream into frames for the client."""

    __slots__ = (
        "_choices",
        "_count",
        "_counted",
        "_last",
        "_plain",
        "_template",
        "content_started",
        "continued",
        "delivered",
        "form",
        "usage",
    )

    def __init__(self, form: AnswerForm, *, count: CountAnswer | None = None) -> None:
        self.form = form
        self.usage: CompletionUsage | None = None  # the upstream's last count; it may be of a part of the answer
        self._count = count
        self._counted: Delivered | None = None  # what was delivered when `usage` came
        self.delivered = Delivered()
        self.continued = False  # a second upstream continued, so neither count covers the whole answer
        self.content_started = False  # content of the answer was encoded
        self._choices: list[ChoiceEncoder] = []
        self._last = ChatChunk()
        self._template: _FrameTemplate | None = None
        self._plain: ChatChunk | None = None  # the last chunk, if its frame was made from the template

    def feed(self, chunk: ChatChunk) -> bytes:
        """The frames of `chunk`; may be empty."""
        if chunk.usage is not UNSET and chunk.usage is not None:
            return self._feed_counted(chunk)
        choices = chunk.choices
        if not choices:
            return self._moderation(chunk)
        if len(choices) == 1 and (frame := self._text(chunk, choices[0])):
            return frame
        self._plain = None  # a choice may have ended
        frames: list[bytes] = []
        for part in choices:
            for encoded in self._choice(part.index, chunk, frames).feed(part):
                self._add(encoded.delta)
                frames.append(self._encode(chunk, encoded))
        return b"".join(frames)

    def _feed_counted(self, chunk: ChatChunk) -> bytes:
        """The frames of a chunk with a usage, which counts the answer up to and with this chunk."""
        usage, chunk.usage = chunk.usage, UNSET
        frames = self.feed(chunk)
        if self.continued:
            return frames
        if is_possible(usage):
            self.usage, self._counted = usage, copy(self.delivered)  # type: ignore[assignment]  # it was checked
        else:
            self._counted = None
        return frames

    def continue_elsewhere(self) -> None:
        """Another upstream continues the answer, so the usage of the first one does not cover it."""
        self.usage, self._counted, self.continued = None, None, True

    @property
    def finished(self) -> bool:
        """Whether every choice has its finish reason."""
        return bool(self._choices) and all(choice.finish_reason is not None for choice in self._choices)

    @property
    def counted(self) -> bool:
        """Whether `usage` is the upstream's count of the whole answer."""
        return self._counted == self.delivered and self.finished

    @property
    def used_tier(self) -> str | UnsetType | None:
        """The service tier the upstream named, in its last chunk."""
        return self._last.service_tier

    def close(self) -> bytes:
        """The last frames of a complete stream; UpstreamTruncated if a choice is unfinished."""
        if not self.finished:
            raise UpstreamTruncated()
        if not self.form.include_usage:
            return DONE
        last = self._stamp(ChatChunk(system_fingerprint=self._last.system_fingerprint), [])
        usage = self.usage or CompletionUsage()
        if self._count is not None:
            usage = self._count(self.usage, self.delivered, self.counted)
        last.usage = usage.public()
        return encode_data(_encoder.encode(last)) + DONE

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
        choice, encoded = self._choices[index], _encoder.encode(text)
        if (
            not choice.opened
            or choice.finish_reason is not None
            or _encoder.encode(delta) != b'{"content":%b}' % encoded
        ):
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

    def feed_texts(self, like: ChatChunk, texts: list[str], below: float) -> bytes:
        """The frames of chunks that are equal to `like`, the last chunk of `feed`, except for their texts.

        Returns b"" and changes nothing if the template does not fit, or if the quarter tokens delivered would reach
        `below`.
        """
        template = self._template
        if like is not self._plain or template is None or "" in texts:
            return b""
        delivered = self.delivered
        quarters = delivered.text_quarter_tokens
        for text in texts:
            quarters += len(text) if text.isascii() else text_units(text)
        if quarters >= below:
            return b""
        if len(texts) == 1:
            frames = b"%b%b%b" % (template.before, _encoder.encode(texts[0]), template.after)
        else:
            frames = b"".join([b"%b%b%b" % (template.before, _encoder.encode(text), template.after) for text in texts])
        self._last, delivered.text_quarter_tokens = like, quarters  # after the encoding, which may raise
        return frames

    def _make_template(self, chunk: ChatChunk, index: int) -> _FrameTemplate:
        frame = self._encode(chunk, ChunkChoice(index, Delta(content=PLACEHOLDER)))
        before, _, after = frame.partition(_encoder.encode(PLACEHOLDER))
        return _FrameTemplate(index, (chunk.system_fingerprint, chunk.service_tier), before, after)

    def _choice(self, index: int, chunk: ChatChunk, frames: list[bytes]) -> ChoiceEncoder:
        """The encoder of choice `index`; opens every choice before it first, because SDK helpers need that."""
        if not 0 <= index < 128:
            raise UpstreamInvalidResponse()
        while len(self._choices) <= index:
            self._choices.append(ChoiceEncoder(len(self._choices), self.form))
            if len(self._choices) <= index:
                frames.extend(self._encode(chunk, part) for part in self._choices[-1].open(tools=False))
        return self._choices[index]

    def _add(self, delta: Delta) -> None:
        """Count the content of a delta."""
        before = self.delivered.text_quarter_tokens
        count_message(delta, self.delivered)
        if self.delivered.text_quarter_tokens != before:
            self.content_started = True

    def _encode(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        out = self._stamp(chunk, [part])
        return encode_data(_encoder.encode(out))

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
        return encode_data(_encoder.encode(out))

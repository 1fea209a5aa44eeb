"""What the encoders of all chat dialects have in common: the count of an answer and the order of its parts.

`feed` brings the chunks of any provider into one form: a role first in every choice, tool calls numbered from 0 and
named once, one finish per choice. A dialect writes each such part (`part_frames`), and the end of a complete answer
(`last_frames`). Sharp edge: the bytes of `feed` must be sent in order; `close` raises for an incomplete stream.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from msgspec import UNSET, UnsetType, structs

from gateway.billing.delivered import Delivered
from gateway.billing.usage import is_possible
from gateway.encoders.chat_choice import ChoiceEncoder
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.chat_media import count_message
from gateway.encoders.chat_surrogates import ChoiceSurrogates
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, CompletionUsage, Delta

#: The usage for the client, from the upstream's count, our own, and whether the first covers the whole answer.
CountAnswer = Callable[[CompletionUsage | None, Delivered, bool], CompletionUsage]


class AnswerEncoder:
    """Turns one provider stream into frames for the client."""

    __slots__ = (
        "_choices",
        "_count",
        "_counted",
        "_last",
        "_surrogates",
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
        self._surrogates: ChoiceSurrogates | None = None  # while a high surrogate waits for its low surrogate
        self._last = ChatChunk()

    # Written by each dialect -----------------------------------------------------------------------------------------

    @property
    def continues_native(self) -> bool:
        """Whether plain chunks may follow the events of an upstream of this dialect that were passed on so far."""
        return True

    def part_frames(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        """The frames of one part of `chunk`: a role, content, or logprobs; never a finish."""
        raise NotImplementedError

    def last_frames(self, finishes: list[ChunkChoice]) -> bytes:
        """The frames that end a complete answer: one finish for every choice, then the usage."""
        raise NotImplementedError

    def feed_texts(self, sample: ChatChunk, texts: list[str], below: float) -> bytes:
        """The frames of chunks that are equal to `sample`, the last chunk of `feed`, except for their texts.

        Returns b"" and changes nothing if the dialect has no template for them, or if the quarter tokens delivered
        would reach `below`.
        """
        return b""

    # For all dialects ------------------------------------------------------------------------------------------------

    def feed(self, chunk: ChatChunk) -> bytes:
        """The frames of `chunk`; may be empty."""
        if chunk.usage is not UNSET and chunk.usage is not None:
            return self._feed_counted(chunk)
        return self._feed_parts(chunk) if chunk.choices else b""

    def _feed_parts(self, chunk: ChatChunk) -> bytes:
        self._last = chunk
        frames: list[bytes] = []
        for part in chunk.choices:
            for encoded in self._choice(part.index, chunk, frames).feed(part):
                if self._surrogates is not None:
                    frames += self._feed_surrogates(chunk, encoded)
                    continue
                try:
                    self._add(encoded.delta)
                except UnicodeEncodeError:  # as of a plugin's text, or of an upstream that cuts by UTF-16 units
                    frames += self._feed_surrogates(chunk, encoded)
                    continue
                frames.append(self.part_frames(chunk, encoded))
        return b"".join(frames)

    def _feed_surrogates(self, chunk: ChatChunk, part: ChunkChoice) -> list[bytes]:
        """The frames of a part that has surrogates, or follows one that had."""
        self._surrogates = surrogates = self._surrogates or ChoiceSurrogates()
        frames = self._whole_frames(chunk, surrogates.parts(part))
        if not surrogates.are_waiting:
            self._surrogates = None
        return frames

    def _whole_frames(self, chunk: ChatChunk, parts: list[ChunkChoice]) -> list[bytes]:
        frames = []
        for part in parts:
            self._add(part.delta)
            frames.append(self.part_frames(chunk, part))
        return frames

    def _end_surrogates(self, surrogates: ChoiceSurrogates) -> bytes:
        """The frames of lone surrogates; a count of the whole answer still covers it."""
        was_counted, self._surrogates = self.counted, None
        frames = self._whole_frames(self._last, surrogates.rest())
        if was_counted:
            self._counted = copy(self.delivered)
        return b"".join(frames)

    def _feed_counted(self, chunk: ChatChunk) -> bytes:
        """The frames of a chunk with a usage, which counts the answer up to and with this chunk."""
        usage, chunk.usage = chunk.usage, UNSET
        if not chunk.choices and chunk.service_tier is not UNSET and chunk.service_tier is not None:
            self._last = structs.replace(self._last, service_tier=chunk.service_tier)
        frames = self.feed(chunk)
        self._take_usage(usage)
        return frames

    def _take_usage(self, usage: Any) -> None:
        """Keep the upstream's count of all that was delivered so far."""
        if self.continued:
            return
        if is_possible(usage):
            self.usage, self._counted = usage, copy(self.delivered)
        else:
            self._counted = None

    def continue_elsewhere(self, text: str) -> None:
        """Another upstream continues the answer after `text`, so the usage of the first one does not cover it."""
        self.usage, self._counted, self.continued = None, None, True
        self._surrogates = None  # the other one continues after the last whole character

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason; content may follow all the same."""
        for choice in self._choices:  # a generator would cost a frame
            if choice.finish_reason is None:
                return False
        return bool(self._choices)

    @property
    def counted(self) -> bool:
        """Whether `usage` is the upstream's count of the whole answer."""
        return self._counted == self.delivered and self.finished

    @property
    def used_tier(self) -> str | UnsetType | None:
        """The service tier the upstream named, in its last chunk or beside its usage."""
        return self._last.service_tier

    def close(self) -> bytes:
        """The last frames of a complete stream: finishes, usage, end; UpstreamTruncated if a choice has no finish."""
        if not self.finished:
            raise UpstreamTruncated()
        frames = b"" if self._surrogates is None else self._end_surrogates(self._surrogates)
        return frames + self.last_frames([choice.finish() for choice in self._choices])

    def counted_usage(self) -> CompletionUsage:
        """The usage that the client is told, which is the one that is charged."""
        usage = self.usage or CompletionUsage()
        if self._count is not None:
            usage = self._count(self.usage, self.delivered, self.counted)
        return usage.public()

    def _choice(self, index: int, chunk: ChatChunk, frames: list[bytes]) -> ChoiceEncoder:
        """The encoder of choice `index`; opens every choice before it first, because SDK helpers need that."""
        if not 0 <= index < 128:
            raise UpstreamInvalidResponse()
        while len(self._choices) <= index:
            self._choices.append(ChoiceEncoder(len(self._choices), self.form))
            if len(self._choices) <= index:
                frames.extend(self.part_frames(chunk, part) for part in self._choices[-1].open(tools=False))
        return self._choices[index]

    def _add(self, delta: Delta) -> None:
        """Count the content of a delta."""
        before = self.delivered.text_quarter_tokens
        count_message(delta, self.delivered)
        if self.delivered.text_quarter_tokens != before:
            self.content_started = True

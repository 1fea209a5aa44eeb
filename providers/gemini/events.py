"""A stream of Gemini's as chat chunks: each frame is a whole answer document that holds what is new.

`FrameReader.read(event)` gives the chunks of one frame. There is no end marker: a stream that ends is complete if a
finish reason is the last part of every candidate. Sharp edge: usage is a total so far and comes with each frame, so
the prompt of a caller who leaves is charged as the newest frame counted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from gateway import ChatChunk, ChunkChoice, Delta, Event, ToolCallDelta
from gateway.errors import UpstreamInvalidResponse
from gateway.sse import DONE_DATA

from .._shared.documents import UNREADABLE
from .answer import Searches, audio_head, image, logprobs, tool_call
from .audio import pcm
from .finish import finish_reason, refusal
from .usage import counts_output, read_usage
from .wire import Blob, WireAnswer, WireCandidate, WirePart, checked, read_answer, read_whole, usual_answer


class FrameReader:
    """Reads the frames of one stream."""

    def __init__(self, hidden: Sequence[str] = (), *, model: str = "") -> None:
        self._hidden = hidden
        self._searches = Searches(model)
        self._choices: dict[int, _ChoiceReader] = {}

    @property
    def finished(self) -> bool:
        """A finish reason is the last part of every candidate that began."""
        return bool(self._choices) and all(choice.ended for choice in self._choices.values())

    def read(self, event: Event) -> list[ChatChunk]:
        """The chunks in one frame; none for one that says nothing."""
        try:
            return self.chunks(read_answer(event.data, self._hidden))
        except UpstreamInvalidResponse:
            if event.data == DONE_DATA:  # of servers that follow OpenAI, too
                return []
            raise

    def read_document(self, body: bytes) -> list[ChatChunk]:
        """The chunks of a whole answer, from a server that does not stream."""
        return self.chunks(read_whole(body, self._hidden))

    def read_usual(self, event: Event) -> list[ChatChunk] | None:
        """As `read` for a frame of Google's shape; None for any other, as with a lone surrogate."""
        try:
            answer = usual_answer(event.data)
        except UNREADABLE:
            return None
        return self.chunks(checked(answer, event.data, self._hidden))

    def chunks(self, answer: WireAnswer) -> list[ChatChunk]:
        """The chunks of a frame."""
        for candidate in answer.candidates or ():
            self._searches.add(candidate.grounding_metadata)
        chunks = [
            ChatChunk(choices=[part])
            for index, candidate in answer.numbered
            for part in self._choice(index).read(candidate, self)
        ]
        if not answer.candidates and answer.block_reason is not None and not self._choices:
            chunks = self._block(answer.block_reason)
        self._add_usage(answer, chunks)
        return chunks

    @property
    def usable(self) -> bool:
        """Some choice has said something or called a function."""
        return any(choice.spoke or choice.calls for choice in self._choices.values())

    def _choice(self, index: int) -> _ChoiceReader:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _ChoiceReader(index)
        return choice

    def _block(self, reason: str) -> list[ChatChunk]:
        self._choice(0).ended = True
        said = ChatChunk(choices=[ChunkChoice(delta=Delta(refusal=refusal(reason)))])
        return [said, ChatChunk.finish("content_filter")]

    def _add_usage(self, answer: WireAnswer, chunks: list[ChatChunk]) -> None:
        metadata = answer.usage_metadata
        if metadata is None or not (chunks or self.finished or counts_output(metadata)):
            return
        usage = read_usage(metadata, searches=self._searches.count)
        if usage is None:
            return
        if chunks:
            chunks[-1].usage = usage
        else:
            chunks.append(ChatChunk.with_usage(usage))


class _ChoiceReader:
    """One candidate, frame by frame."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.ended = False
        self.spoke = False
        self.calls = 0
        self._images = 0
        self._audio: dict[str, Any] | None = None  # said once

    def read(self, candidate: WireCandidate, frames: FrameReader) -> Iterator[ChunkChoice]:
        """What a frame adds: its parts, then its finish."""
        probabilities = logprobs(candidate.logprobs_result)
        for part in candidate.parts:
            delta = self._delta(part)
            if delta is not None:
                self.ended = False  # content after a finish: the finish was no end
                yield ChunkChoice(self.index, delta, probabilities)
                probabilities = None
        if candidate.finish_reason:
            reason = finish_reason(
                candidate.finish_reason, called=self.calls > 0, spoke=self.spoke, usable=frames.usable
            )
            self.ended = True
            yield ChunkChoice(self.index, logprobs=probabilities, finish_reason=reason)

    def _delta(self, part: WirePart) -> Delta | None:
        if part.text:
            if part.thought:
                return Delta(reasoning_content=part.text)
            self.spoke = True
            return Delta(content=part.text)
        if part.function_call is not None:
            return self._call(part)
        if part.inline_data is not None and not part.thought:
            return self._media(part.inline_data)
        return None

    def _call(self, part: WirePart) -> Delta:
        assert part.function_call is not None
        call = tool_call(part.function_call, part.thought_signature)
        self.calls += 1
        fragment = ToolCallDelta(self.calls - 1, call.id, "function", call.function, extra_content=call.extra_content)
        return Delta(tool_calls=[fragment])

    def _media(self, blob: Blob) -> Delta:
        self.spoke = True
        if not blob.mime_type.startswith("audio/"):
            self._images += 1
            return Delta(images=Raw(msgspec.json.encode([image(blob, self._images - 1)])))
        pcm(blob)  # refuses what is not 24 kHz PCM; the base64 goes on as it came
        head = {} if self._audio is not None else audio_head()
        self._audio = self._audio or head
        document = {"id": self._audio["id"], **head, "data": blob.data, "transcript": ""}
        return Delta(audio=Raw(msgspec.json.encode(document)))

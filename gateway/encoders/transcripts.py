"""Encodes a streamed transcript as events: pieces of text, and the whole text with its usage at the end.

`TranscriptStreamEncoder` takes a provider's `TranscriptEvent`s. A stream without a `done` event counts as cut. Sharp
edge: the endpoint makes the last event, because it knows the charged usage.
"""

from __future__ import annotations

from gateway.billing.delivered import Delivered
from gateway.billing.usage import text_units
from gateway.encoders.transcript_formats import Speakers, delta_frame, segment_frame, typed_transcript
from gateway.errors import UpstreamTruncated
from gateway.schemas.answer_surrogates import WaitingSurrogates
from gateway.schemas.transcription import Transcript, TranscriptEvent, TranscriptionRequest

DELTA = "delta"  # where surrogates wait


class TranscriptStreamEncoder:
    """Turns a provider's events into frames."""

    def __init__(self, request: TranscriptionRequest) -> None:
        self.transcript: Transcript | None = None  # set when it is complete
        self.delivered = Delivered()
        self._speakers = Speakers(request)
        self._diarized = request.response_format == "diarized_json"
        self._segments = 0
        self._surrogates = WaitingSurrogates()

    @property
    def content_started(self) -> bool:
        """Whether any text or segment was encoded."""
        return self.delivered.text_quarter_tokens > 0 or self._segments > 0

    def feed(self, item: TranscriptEvent) -> bytes:
        """The frames of one event."""
        if not isinstance(item, TranscriptEvent):
            raise TypeError(f"a streamed transcript yields TranscriptEvent, not {type(item).__name__}")
        if item.done is not None:
            self.transcript = typed_transcript(item.done)
        frames = b""
        if item.delta or self._surrogates:
            self.delivered.text_quarter_tokens += self._units(item)
            frames = delta_frame(item) if item.delta else b""
        if item.segment is not None and self._diarized:
            frames += segment_frame(item.segment, self._segments, self._speakers)
            self._segments += 1
        return frames

    def _units(self, item: TranscriptEvent) -> int:
        """The quarter tokens of the text; surrogates in it are joined over events."""
        if not self._surrogates:
            try:
                return text_units(item.delta, "strict")
            except UnicodeEncodeError:
                pass
        if item.delta:
            item.delta = self._surrogates.join(DELTA, item.delta)
        if item.done is not None:
            item.delta += self._surrogates.give_up(DELTA)
        return text_units(item.delta)

    def close(self) -> bytes:
        """No bytes, because the endpoint makes the last event; UpstreamTruncated for a stream without `done`."""
        if self.transcript is None:
            raise UpstreamTruncated()
        return b""

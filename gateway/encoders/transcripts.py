"""A streamed transcript as events: text as it is heard, and the whole with its usage at the end.

`TranscriptStreamEncoder` takes a provider's `TranscriptEvent`s. Without a `done` among them the answer has no end, and
is told to be cut off. Sharp edge: the last event is the endpoint's, which knows what is charged.
"""

from __future__ import annotations

from gateway.billing.delivered import Delivered
from gateway.billing.usage import text_units
from gateway.encoders.transcript_formats import Speakers, delta_frame, segment_frame, sound_transcript
from gateway.errors import UpstreamTruncated
from gateway.schemas.transcription import Transcript, TranscriptEvent, TranscriptionRequest


class TranscriptStreamEncoder:
    """Turns events into frames."""

    def __init__(self, request: TranscriptionRequest) -> None:
        self.transcript: Transcript | None = None  # once it is whole
        self.delivered = Delivered()
        self._speakers = Speakers(request)
        self._diarized = request.response_format == "diarized_json"
        self._segments = 0

    @property
    def content_started(self) -> bool:
        """Whether the client was told anything; it learns the end from the endpoint."""
        return self.delivered.text_quarter_tokens > 0 or self._segments > 0

    def feed(self, item: TranscriptEvent) -> bytes:
        """The frames of one event."""
        if not isinstance(item, TranscriptEvent):
            raise TypeError(f"a streamed transcript yields TranscriptEvent, not {type(item).__name__}")
        if item.done is not None:
            self.transcript = sound_transcript(item.done)
        frames = b""
        if item.delta:
            self.delivered.text_quarter_tokens += text_units(item.delta)
            frames = delta_frame(item)
        if item.segment is not None and self._diarized:
            frames += segment_frame(item.segment, self._segments, self._speakers)
            self._segments += 1
        return frames

    def close(self) -> bytes:
        """Nothing: the last event comes from the endpoint; UpstreamTruncated when there is none to come."""
        if self.transcript is None:
            raise UpstreamTruncated()
        return b""

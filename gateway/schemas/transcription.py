"""The form of `POST /v1/audio/transcriptions`, and what a provider answers to it (wire contract 1.6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

from msgspec import UNSET, Struct, UnsetType, field

TranscriptFormat = Literal["json", "text", "srt", "vtt", "verbose_json", "diarized_json"]


class AudioFile(Protocol):
    """The uploaded sound, kept on disk: it may be read as often as there are attempts."""

    filename: str
    media_type: str  # "audio/mpeg", by extension, the part's own type or its first bytes, in this order
    size: int  # bytes
    seconds: float | None  # what its container's headers say; None when they do not

    def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes from the start, in pieces of at most 64 KiB; each call begins anew."""


class TranscriptionRequest(Struct, kw_only=True):
    """A valid transcription request; an absent field is None or empty."""

    model: str
    file: AudioFile
    language: str | None = None  # ISO 639-1
    languages: list[str] = field(default_factory=list)
    prompt: str | None = None
    keywords: list[str] = field(default_factory=list)
    response_format: TranscriptFormat = "json"
    temperature: float | None = None  # 0..1
    timestamp_granularities: list[Literal["word", "segment"]] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    stream: bool = False
    chunking_strategy: dict[str, Any] | Literal["auto"] | None = None
    known_speaker_names: list[str] = field(default_factory=list)
    known_speaker_references: list[str] = field(default_factory=list)

    #: Every text field as sent, in order, for upstreams of the same dialect.
    fields: list[tuple[str, str]] = field(default_factory=list)


class Word(Struct):
    """A word and its place in the sound, in seconds."""

    word: str
    start: float
    end: float


class Segment(Struct, omit_defaults=True):
    """A stretch of speech; `speaker` where speakers were told apart. Times are seconds."""

    start: float
    end: float
    text: str
    speaker: str | None = None
    tokens: list[int] = field(default_factory=list)
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 0.0
    no_speech_prob: float = 0.0


class TranscriptUsage(Struct, omit_defaults=True):
    """What the upstream counted: tokens or seconds; the audio tokens are part of `input_tokens`."""

    seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    audio_tokens: int = 0


class Transcript(Struct):
    """What a provider gives back; the gateway writes every `response_format` from it, subtitles included."""

    text: str
    language: str | None = None
    duration: float | None = None  # seconds
    segments: list[Segment] | None = None
    words: list[Word] | None = None
    usage: TranscriptUsage | None = None
    logprobs: Any | UnsetType = UNSET


class TranscriptEvent(Struct):
    """A step of a streamed transcript: text as it is heard, or the whole at the end."""

    delta: str = ""
    segment: Segment | None = None
    done: Transcript | None = None
    logprobs: Any | UnsetType = UNSET

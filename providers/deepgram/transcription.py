"""Transcription: what the address asks for, and segments, words and speakers out of the answer.

What callers may send is in docs/providers/deepgram.md. Utterances become segments. Sharp edge: audio of several
channels is one transcript, of its first channel.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from gateway import Segment, Transcript, TranscriptionRequest, TranscriptUsage, Word
from gateway.errors import UpstreamInvalidResponse

from .._shared.documents import decoded

FORMATS = frozenset({"json", "text", "srt", "vtt", "verbose_json", "diarized_json"})

#: Fields of its own that callers may send.
OWN_FIELDS = frozenset({"filler_words", "numerals", "profanity_filter", "redact", "utt_split"})

# Models up to this generation have `keywords`, later ones `keyterm`.
_OLDER = ("nova-2", "nova", "enhanced", "base", "whisper")


class WireWord(Struct):
    """A word, with the punctuation around it where there is any."""

    word: str = ""
    start: float = 0.0
    end: float = 0.0
    punctuated_word: str = ""

    @property
    def shown(self) -> str:
        """The word as it is written."""
        return self.punctuated_word or self.word


class WireUtterance(Struct):
    """What somebody said in one go."""

    start: float
    end: float
    transcript: str = ""
    speaker: int | None = None


class WireAlternative(Struct):
    """One reading of a channel."""

    transcript: str = ""
    words: list[WireWord] = []
    languages: list[str] | None = None


class WireChannel(Struct):
    """A channel, its best reading first."""

    alternatives: list[WireAlternative] = []
    detected_language: str | None = None


class WireResults(Struct):
    """What was heard."""

    channels: list[WireChannel] = []
    utterances: list[WireUtterance] | None = None


class WireMetadata(Struct):
    """About the audio."""

    duration: float | None = None


class WireTranscript(Struct):
    """The document."""

    results: WireResults
    metadata: WireMetadata | None = None


_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
_decoder = msgspec.json.Decoder(WireTranscript)


def query(request: TranscriptionRequest, model: str, *, detect_language: bool) -> list[tuple[str, str]]:
    """What the address says."""
    asked = [("model", model), ("smart_format", "true"), ("utterances", "true")]
    if request.response_format == "diarized_json":
        asked.append(("diarize", "true"))
    if request.language is not None:
        asked.append(("language", request.language))
    elif detect_language:
        asked.append(("detect_language", "true"))
    name = "keywords" if _is_older(model) else "keyterm"
    asked += ((name, word) for word in request.keywords)
    asked += ((name, value) for name, value in request.parts if name in OWN_FIELDS)
    return asked


def media_type(request: TranscriptionRequest) -> str:
    """The audio's type, if it has the form of one: it becomes a header."""
    name = request.file.media_type
    return name if _MEDIA_TYPE.fullmatch(name) else "application/octet-stream"


def _is_older(model: str) -> bool:
    return any(model == name or model.startswith(f"{name}-") for name in _OLDER) and not model.startswith("nova-3")


def read_transcript(body: bytes, *, speakers: bool) -> Transcript:
    """The transcript in an answer; `speakers` were asked for."""
    found = decoded(_decoder, body)
    channel = found.results.channels[0] if found.results.channels else WireChannel()
    best = channel.alternatives[0] if channel.alternatives else WireAlternative()
    said = found.results.utterances or []
    if not channel.alternatives and not said:
        raise UpstreamInvalidResponse(detail="a transcript without a channel")
    seconds = found.metadata.duration if found.metadata is not None else None
    return Transcript(
        best.transcript or " ".join(one.transcript for one in said) or " ".join(word.shown for word in best.words),
        language=channel.detected_language or (best.languages[0] if best.languages else None),
        duration=seconds,
        segments=[_segment(one, speakers=speakers) for one in said] or None,
        words=[Word(word.shown, word.start, word.end) for word in best.words] or None,
        usage=None if seconds is None else TranscriptUsage(seconds=seconds),
    )


def _segment(said: WireUtterance, *, speakers: bool) -> Segment:
    speaker = str(said.speaker) if speakers and said.speaker is not None else None
    return Segment(said.start, said.end, said.transcript, speaker)

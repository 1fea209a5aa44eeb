"""Transcription: the form that asks for it, and words with times and speakers out of the answer.

What callers may send is in docs/providers/elevenlabs.md. Times are asked for only where the caller's format has them.
Sharp edge: an answer has no segments; those of one speaker after another are made here, any others by the gateway, out
of the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from gateway import Multipart, Segment, Transcript, TranscriptionRequest, TranscriptUsage, Word
from gateway.errors import UpstreamInvalidResponse

from .._shared.documents import decoded

FORMATS = frozenset({"json", "text", "srt", "vtt", "verbose_json", "diarized_json"})
TIMED = FORMATS - {"json", "text"}

#: Fields of its own that callers may send.
OWN_FIELDS = frozenset({"num_speakers", "diarization_threshold", "tag_audio_events", "no_verbatim", "seed"})


class WireWord(Struct):
    """A word, the space after it, or a sound that is no word."""

    text: str
    type: str = "word"
    start: float | None = None
    end: float | None = None
    speaker_id: str | None = None


class WireTranscript(Struct):
    """The document."""

    text: str | None = None
    language_code: str | None = None
    words: list[WireWord] | None = None
    audio_duration_secs: float | None = None


_decoder = msgspec.json.Decoder(WireTranscript)


def form(request: TranscriptionRequest, model: str) -> Multipart:
    """The form to send; the file goes last and streams through."""
    form = Multipart().field("model_id", model)
    form.field("timestamps_granularity", "word" if request.response_format in TIMED else "none")
    form.field("diarize", "true" if request.response_format == "diarized_json" else "false")
    if "tag_audio_events" not in request.extra:
        form.field("tag_audio_events", "false")  # a transcript tells what was said, not who laughed
    if request.language is not None:
        form.field("language_code", request.language)
    if request.temperature is not None:
        form.field("temperature", str(request.temperature))
    for name, value in request.parts:
        if name in OWN_FIELDS:
            form.field(name, value)
    file = request.file
    return form.file("file", file.chunks(), filename=file.filename, content_type=file.media_type, size=file.size)


def read_transcript(body: bytes, *, speakers: bool) -> Transcript:
    """The transcript in an answer; with `speakers` a segment for each turn."""
    found = decoded(_decoder, body)
    seconds = found.audio_duration_secs
    said = found.words or []
    text = found.text
    if text is None and said:
        text = "".join(word.text for word in said if word.type != "audio_event").strip()
    if text is None:
        raise UpstreamInvalidResponse(detail="a transcript without text")
    return Transcript(
        text,
        language=found.language_code,
        duration=seconds,
        segments=list(_turns(said)) or None if speakers else None,
        words=_words(said) or None,
        usage=None if seconds is None else TranscriptUsage(seconds=seconds),
    )


def _words(said: Iterable[WireWord]) -> list[Word]:
    return [
        Word(word.text, word.start, word.end)
        for word in said
        if word.type == "word" and word.start is not None and word.end is not None
    ]


def _turns(said: list[WireWord]) -> Iterator[Segment]:
    """What each speaker said before another went on."""
    turns: list[list[WireWord]] = []
    for word in said:
        if turns and (word.type == "spacing" or word.speaker_id == turns[-1][0].speaker_id):
            turns[-1].append(word)
        elif word.type == "word":
            turns.append([word])
    for turn in turns:
        if words := _words(turn):
            text = "".join(word.text for word in turn if word.type != "audio_event").strip()
            yield Segment(words[0].start, words[-1].end, text, turn[0].speaker_id)

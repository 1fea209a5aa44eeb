"""Made-up transcripts: words that tell the audio's length and hash, evenly spread over its time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from gateway import Segment, Transcript, TranscriptEvent, TranscriptionRequest, TranscriptUsage, Word
from gateway.errors import UpstreamTruncated

from .script import Script

FORMATS = frozenset({"json", "text", "srt", "vtt", "verbose_json", "diarized_json"})
BYTES_PER_SECOND = 16_000  # of audio whose headers do not say
WORDS_PER_SEGMENT = 4


async def listened(request: TranscriptionRequest, script: Script) -> Transcript:
    """The transcript of the whole file, which is read to its end."""
    digest = hashlib.sha256()
    async for piece in request.file.chunks():
        digest.update(piece)
    text = f"I heard {request.file.size} bytes of audio that begin their hash with {digest.hexdigest()[:8]}."
    return _transcript(request, script, text if script.text is None else script.text)


def transcript_events(
    transcript: Transcript, request: TranscriptionRequest, script: Script
) -> Iterator[TranscriptEvent]:
    """The words one by one, segments of speakers where they are told apart, and the whole."""
    for number, word in enumerate(transcript.words or ()):
        yield TranscriptEvent(delta=word.word if not number else f" {word.word}")
    if request.response_format == "diarized_json":
        for segment in transcript.segments or ():
            yield TranscriptEvent(segment=segment)
    if script.truncated:
        raise UpstreamTruncated()
    yield TranscriptEvent(done=transcript)


def _transcript(request: TranscriptionRequest, script: Script, text: str) -> Transcript:
    seconds = round(request.file.seconds or request.file.size / BYTES_PER_SECOND, 3)
    spoken = text.split()
    each = seconds / max(1, len(spoken))
    words = [Word(word, round(at * each, 3), round((at + 1) * each, 3)) for at, word in enumerate(spoken)]
    lines = [words[start : start + WORDS_PER_SEGMENT] for start in range(0, len(words), WORDS_PER_SEGMENT)]
    segments = [
        Segment(line[0].start, line[-1].end, " ".join(word.word for word in line), speaker="AB"[number % 2])
        for number, line in enumerate(lines)
    ]
    return Transcript(
        text,
        language=request.language or "english",
        duration=None if script.usage != "right" else seconds,
        segments=segments,
        words=words,
        usage=_usage(seconds, script),
    )


def _usage(seconds: float, script: Script) -> TranscriptUsage | None:
    wrong = script.wrong(seconds + 1)
    return None if script.usage == "none" else TranscriptUsage(seconds if wrong is None else wrong)

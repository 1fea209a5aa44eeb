"""Encodes a `Transcript` in every format of a transcription (docs/api.md).

`write_transcript(transcript, request)` returns media type and body of a whole answer; `delta_frame`, `segment_frame`
and `done_frame` make the events of a streamed one. Missing values are filled in: the duration from the headers of the
file, segments from words, letters for unnamed speakers. Sharp edge: call `typed_transcript` first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, structs

from gateway.schemas.answer_surrogates import encode_whole
from gateway.schemas.transcription import (
    Segment,
    Transcript,
    TranscriptEvent,
    TranscriptionRequest,
    TranscriptUsage,
    Word,
)
from gateway.sse import encode_data

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

CUE_SECONDS = 7.0  # longest subtitle that is made from words
CUE_CHARACTERS = 80
SENTENCE_END = (".", "?", "!", "。", "？", "！")
MAX_COUNT = 1_000_000_000  # a larger count is impossible for one call

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Transcript)


def validated_transcript(transcript: Transcript) -> Transcript:
    """The same as `typed_transcript`, without a usage whose counts are impossible."""
    sound = typed_transcript(transcript)
    if sound.usage is not None and not is_possible(sound.usage):
        sound.usage = None
    return sound


def typed_transcript(transcript: Transcript) -> Transcript:
    """A copy of the transcript with checked types; raises TypeError or msgspec.MsgspecError otherwise."""
    if not isinstance(transcript, Transcript):
        raise TypeError(f"a transcript is a Transcript, not a {type(transcript).__name__}")
    return _decoder.decode(encode_whole(transcript))


def is_possible(usage: TranscriptUsage) -> bool:
    """Whether the counts are possible for one call."""
    counts = (usage.seconds or 0, usage.input_tokens, usage.output_tokens, usage.audio_tokens)
    return all(0 <= count <= MAX_COUNT for count in counts) and any(counts)


def write_transcript(transcript: Transcript, request: TranscriptionRequest) -> tuple[str, bytes]:
    """Media type and body in the requested format."""
    match request.response_format:
        case "verbose_json":
            return JSON, _encoder.encode(_verbose(transcript, request))
        case "diarized_json":
            return JSON, _encoder.encode(_diarized(transcript, request))
        case "text":
            return TEXT, transcript.text.strip().encode() + b"\n"
        case "srt":
            return TEXT, _srt(subtitles(transcript, request)).encode()
        case "vtt":
            return TEXT, _vtt(subtitles(transcript, request)).encode()
        case _:
            return JSON, _encoder.encode({"text": transcript.text} if request.translates else _plain(transcript))


def duration(transcript: Transcript, request: TranscriptionRequest) -> float | None:
    """Seconds of the audio: the provider's count, else the duration in the file's headers."""
    if transcript.duration is not None:
        return transcript.duration
    if transcript.usage is not None and transcript.usage.seconds is not None:
        return transcript.usage.seconds
    return request.file.seconds


# JSON ----------------------------------------------------------------------------------------------------------------


def public_usage(usage: TranscriptUsage) -> dict[str, Any]:
    """The wire form of the usage: tokens if they were counted, else seconds."""
    if not usage.input_tokens and not usage.output_tokens:
        return {"type": "duration", "seconds": usage.seconds or 0}
    text = max(0, usage.input_tokens - usage.audio_tokens)
    return {
        "type": "tokens",
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_token_details": {"text_tokens": text, "audio_tokens": usage.input_tokens - text},
    }


def _plain(transcript: Transcript) -> dict[str, Any]:
    return {"text": transcript.text, **_logprobs(transcript), **_usage(transcript)}


def _verbose(transcript: Transcript, request: TranscriptionRequest) -> dict[str, Any]:
    seconds = duration(transcript, request) or 0.0
    document: dict[str, Any] = {
        "task": "translate" if request.translates else "transcribe",
        "language": "english" if request.translates else transcript.language or request.language or "",
        "duration": seconds,
        "text": transcript.text,
    }
    asked = request.timestamp_granularities or ["segment"]
    if "segment" in asked:
        segments = subtitles(transcript, request)
        document["segments"] = [_verbose_segment(number, segment) for number, segment in enumerate(segments)]
    if "word" in asked:
        document["words"] = transcript.words or []
    if request.translates:  # in this form, OpenAI has no place for more
        return document
    return {**document, **_logprobs(transcript), "usage": {"type": "duration", "seconds": seconds}}


def _verbose_segment(number: int, segment: Segment) -> dict[str, Any]:
    fields = structs.asdict(segment)
    del fields["speaker"]
    return {"id": number, "seek": 0, **fields}


def _diarized(transcript: Transcript, request: TranscriptionRequest) -> dict[str, Any]:
    speakers = Speakers(request)
    segments = [
        {"id": f"seg_{number}", "type": "transcript.text.segment", **speakers.segment(segment)}
        for number, segment in enumerate(subtitles(transcript, request))
    ]
    return {
        "task": "transcribe",
        "duration": duration(transcript, request) or 0.0,
        "text": transcript.text,
        "segments": segments,
        **_usage(transcript),
    }


class Speakers:
    """Names of speakers: those that the caller gave, else A, B and so on in order of appearance."""

    def __init__(self, request: TranscriptionRequest) -> None:
        self._known = frozenset(request.known_speaker_names)
        self._letters: dict[str, str] = {}

    def segment(self, segment: Segment) -> dict[str, Any]:
        """The fields of a segment in a diarized answer."""
        speaker = segment.speaker or ""
        if speaker not in self._known:
            speaker = self._letters.setdefault(speaker, _letters(len(self._letters)))
        return {"start": segment.start, "end": segment.end, "speaker": speaker, "text": segment.text}


def _letters(number: int) -> str:
    """A to Z, then AA and so on."""
    name = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(65 + letter) + name
    return name


def _logprobs(transcript: Transcript | TranscriptEvent) -> dict[str, Any]:
    return {} if transcript.logprobs is UNSET else {"logprobs": transcript.logprobs}


def _usage(transcript: Transcript) -> dict[str, Any]:
    return {} if transcript.usage is None else {"usage": public_usage(transcript.usage)}


# Events --------------------------------------------------------------------------------------------------------------


def delta_frame(event: TranscriptEvent) -> bytes:
    """The event of a piece of text."""
    return _frame({"type": "transcript.text.delta", "delta": event.delta, **_logprobs(event)})


def segment_frame(segment: Segment, number: int, speakers: Speakers) -> bytes:
    """The event of a finished segment of one speaker."""
    return _frame({"type": "transcript.text.segment", "id": f"seg_{number}", **speakers.segment(segment)})


def done_frame(transcript: Transcript) -> bytes:
    """The last event, with the whole text and the counted tokens: OpenAI's has no place for seconds."""
    document = _plain(transcript)
    if "seconds" in document.get("usage", ()):
        del document["usage"]
    return _frame({"type": "transcript.text.done", **document})


def _frame(document: dict[str, Any]) -> bytes:
    return encode_data(encode_whole(document))


# Subtitles -----------------------------------------------------------------------------------------------------------


def subtitles(transcript: Transcript, request: TranscriptionRequest) -> list[Segment]:
    """The segments; made from words or from the whole text if the provider gave none."""
    if transcript.segments:
        return transcript.segments
    if transcript.words:
        return list(_grouped(transcript.words))
    if not transcript.text.strip():
        return []
    return [Segment(0.0, duration(transcript, request) or 0.0, transcript.text.strip())]


def _grouped(words: list[Word]) -> Iterable[Segment]:
    """Words grouped into subtitles by sentence, duration and length."""
    line: list[Word] = []
    for word in words:
        line.append(word)
        long = word.end - line[0].start >= CUE_SECONDS or sum(len(one.word) + 1 for one in line) > CUE_CHARACTERS
        if long or word.word.rstrip().endswith(SENTENCE_END):
            yield _joined(line)
            line = []
    if line:
        yield _joined(line)


def _joined(words: list[Word]) -> Segment:
    return Segment(words[0].start, words[-1].end, " ".join(word.word.strip() for word in words))


def _srt(segments: list[Segment]) -> str:
    cues = (
        f"{number}\n{_clock(segment.start, ',')} --> {_clock(segment.end, ',')}\n{_cue(segment.text)}\n"
        for number, segment in enumerate(segments, start=1)
    )
    return "\n".join(cues) or "\n"


def _vtt(segments: list[Segment]) -> str:
    cues = (
        f"\n{_clock(segment.start, '.')} --> {_clock(segment.end, '.')}\n{_cue(segment.text)}\n" for segment in segments
    )
    return "WEBVTT\n" + "".join(cues)


def _cue(text: str) -> str:
    """Text without empty lines and without an arrow, which would end the cue."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip()).replace("-->", "->")


def _clock(seconds: float, mark: str) -> str:
    whole, milliseconds = divmod(round(max(0.0, seconds) * 1000), 1000)
    minutes, second = divmod(whole, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}{mark}{milliseconds:03d}"

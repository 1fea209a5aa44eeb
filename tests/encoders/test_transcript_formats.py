"""Transcripts in every form: subtitles that players take, speakers that have names, usage that is possible."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gateway.encoders.transcript_formats import subtitles, validated_transcript, write_transcript
from gateway.encoders.transcripts import TranscriptStreamEncoder
from gateway.errors import UpstreamTruncated
from gateway.schemas.transcription import Segment, Transcript, TranscriptEvent, TranscriptUsage, Word
from gateway.testing.transcription_cases import RecordedSilence, transcription_question


def write(transcript: Transcript, format: str, **fields: Any) -> str:
    return write_transcript(transcript, transcription_question(response_format=format, **fields))[1].decode()


def document(transcript: Transcript, format: str, **fields: Any) -> Any:
    return json.loads(write(transcript, format, **fields))


def words(text: str, *, each: float = 0.5) -> list[Word]:
    return [Word(word, at * each, (at + 1) * each) for at, word in enumerate(text.split())]


def test_subtitles_have_hours_and_milliseconds() -> None:
    transcript = Transcript("late", segments=[Segment(3661.0015, 36_000.9999, "late")])
    assert write(transcript, "srt") == "1\n01:01:01,002 --> 10:00:01,000\nlate\n"
    assert write(transcript, "vtt") == "WEBVTT\n\n01:01:01.002 --> 10:00:01.000\nlate\n"


def test_text_cannot_end_its_subtitle_cue() -> None:
    transcript = Transcript("x", segments=[Segment(0, 1, " one\n\n2\n00:00 --> 00:01\r\n ")])
    assert write(transcript, "vtt") == "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\none\n2\n00:00 -> 00:01\n"


def test_subtitles_are_split_by_sentences_and_by_length() -> None:
    text = "One two three. " + "word " * 40
    segments = subtitles(Transcript(text, words=words(text)), transcription_question())
    assert (segments[0].text, segments[0].start, segments[0].end) == ("One two three.", 0.0, 1.5)
    assert all(len(segment.text) <= 86 and segment.end - segment.start <= 7.5 for segment in segments)
    assert " ".join(segment.text for segment in segments) == text.strip()


def test_text_without_times_is_one_subtitle_as_long_as_the_audio() -> None:
    assert write(Transcript("hm"), "srt") == "1\n00:00:00,000 --> 00:00:00,500\nhm\n"


def test_silence_has_no_subtitle() -> None:
    assert write(Transcript(""), "vtt") == "WEBVTT\n"
    assert document(Transcript(""), "verbose_json")["segments"] == []
    assert write(Transcript(""), "text") == "\n"


def test_duration_comes_from_the_provider_or_its_usage_or_the_header() -> None:
    usage = TranscriptUsage(seconds=3)
    assert document(Transcript("x", duration=2.5, usage=usage), "verbose_json")["duration"] == 2.5
    assert document(Transcript("x", usage=usage), "verbose_json")["duration"] == 3
    assert document(Transcript("x"), "verbose_json")["duration"] == 0.5


def test_words_and_segments_are_returned_as_requested() -> None:
    transcript = Transcript("a b", words=words("a b"), segments=[Segment(0, 1, "a b")])
    assert "words" not in document(transcript, "verbose_json")
    both = document(transcript, "verbose_json", timestamp_granularities='["word", "segment"]')
    assert len(both["words"]) == 2
    assert len(both["segments"]) == 1


def test_speakers_keep_the_names_given_by_the_caller_or_get_letters() -> None:
    segments = [Segment(0, 1, "x", speaker=name) for name in ("speaker_7", "Ada", "speaker_2", "speaker_7", None)]
    fields = {"known_speaker_names": "Ada", "known_speaker_references": "data:audio/wav;base64,AAAA"}
    told = document(Transcript("x", segments=segments), "diarized_json", **fields)["segments"]
    assert [segment["speaker"] for segment in told] == ["A", "Ada", "B", "A", "C"]


def test_more_speakers_than_letters_get_names_too() -> None:
    segments = [Segment(0, 1, "x", speaker=str(number)) for number in range(28)]
    told = document(Transcript("x", segments=segments), "diarized_json")["segments"]
    assert [segment["speaker"] for segment in told[25:]] == ["Z", "AA", "AB"]


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (TranscriptUsage(seconds=3), {"type": "duration", "seconds": 3.0}),
        (
            TranscriptUsage(input_tokens=40, output_tokens=7, audio_tokens=30),
            {
                "type": "tokens", "input_tokens": 40, "output_tokens": 7, "total_tokens": 47,
                "input_token_details": {"text_tokens": 10, "audio_tokens": 30},
            },
        ),
        (
            TranscriptUsage(input_tokens=4, audio_tokens=30),
            {
                "type": "tokens", "input_tokens": 4, "output_tokens": 0, "total_tokens": 4,
                "input_token_details": {"text_tokens": 0, "audio_tokens": 4},
            },
        ),
    ],
)  # fmt: skip
def test_usage_is_written_in_both_forms_of_the_api(usage: TranscriptUsage, told: dict[str, Any]) -> None:
    assert document(Transcript("x", usage=usage), "json")["usage"] == told


@pytest.mark.parametrize(
    "usage",
    [
        TranscriptUsage(),
        TranscriptUsage(seconds=-1),
        TranscriptUsage(seconds=1e18),
        TranscriptUsage(input_tokens=-1, output_tokens=5),
        TranscriptUsage(output_tokens=10**12),
    ],
)
def test_impossible_usage_is_none(usage: TranscriptUsage) -> None:
    assert validated_transcript(Transcript("x", usage=usage)).usage is None


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "text",
        {"text": "x"},
        Transcript(5),  # type: ignore[arg-type]
        Transcript("x", segments=["y"]),  # type: ignore[list-item]
        Transcript("x", duration="3"),  # type: ignore[arg-type]
    ],
)
def test_invalid_transcript_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, msgspec.MsgspecError)):
        validated_transcript(wrong)


def test_stream_without_its_end_is_truncated() -> None:
    encoder = TranscriptStreamEncoder(transcription_question(stream="true"))
    assert (
        encoder.feed(TranscriptEvent(delta="I heard"))
        == b'data: {"type":"transcript.text.delta","delta":"I heard"}\n\n'
    )
    assert encoder.content_started
    with pytest.raises(UpstreamTruncated):
        encoder.close()


def test_stream_of_another_type_is_refused() -> None:
    encoder = TranscriptStreamEncoder(transcription_question(stream="true"))
    with pytest.raises(TypeError):
        encoder.feed({"delta": "x"})  # type: ignore[arg-type]


def test_duration_of_a_recorded_silence_is_half_a_second() -> None:
    assert RecordedSilence().size == 44 + 16_000

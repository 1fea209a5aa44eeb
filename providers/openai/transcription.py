"""Transcription and translation at OpenAI-compatible servers: audio as a form, words as a document or as events.

Documents are always asked for, `verbose_json` where times are needed, and the gateway writes the subtitles itself.
Servers that answer with plain text, SRT or VTT all the same are understood. Sharp edge: models that stream take `json`
only; asked for times they refuse, and that refusal is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct, structs

from gateway import (
    Event,
    Multipart,
    Segment,
    Target,
    Transcript,
    TranscriptEvent,
    Transcription,
    TranscriptionRequest,
    TranscriptUsage,
    Word,
)
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.plugins.upstream_errors import error_of_document
from gateway.sse import DONE_DATA

from .._shared.documents import UNREADABLE, decoded, json_object, raise_error_event
from .._shared.fitting import read_json
from .._shared.whole_stream import events_of, is_event_stream
from .server import OpenAIServer, SharedOptions

PATH, TRANSLATIONS = "/audio/transcriptions", "/audio/translations"
DELTA, SEGMENT, DONE = "transcript.text.delta", "transcript.text.segment", "transcript.text.done"

#: What to ask for, by what the caller wants; anything else is asked for as it is.
ASKED = {"text": "json", "srt": "verbose_json", "vtt": "verbose_json"}
LISTS = (
    "languages", "keywords", "timestamp_granularities", "include", "known_speaker_names", "known_speaker_references",
)  # fmt: skip

# "00:01.000 --> 00:02.5" and the like, with the text up to an empty line.
_CUE = re.compile(r"((?:\d+:)?\d+:\d+[.,]\d+) --> ((?:\d+:)?\d+:\d+[.,]\d+)[^\n]*\n(.*?)(?=\n\s*\n|\Z)", re.DOTALL)


class WireSegment(Struct):
    """A segment as it comes."""

    start: float | None = 0.0
    end: float | None = 0.0
    text: str | None = ""
    speaker: str | None = None
    tokens: list[int] | None = None
    temperature: float | None = None
    avg_logprob: float | None = None
    compression_ratio: float | None = None
    no_speech_prob: float | None = None


class WireTranscript(Struct):
    """A document, or an event's data, as it comes."""

    type: str | None = ""
    text: str | None = None
    delta: str | None = ""
    language: Any = None
    duration: Any = None
    segments: list[WireSegment] | None = None
    words: list[Word] | None = None
    usage: Any = None
    logprobs: Any = UNSET
    error: Any = UNSET
    choices: Any = None  # of vLLM's streams, whose events have the form of a chat

    @property
    def spoken(self) -> str | None:
        """The text; out of segments or words where there is none, None where there is nothing."""
        if self.text is not None:
            return self.text
        said = [one.text or "" for one in self.segments or ()] or [f" {one.word.strip()}" for one in self.words or ()]
        return "".join(said).strip() if said else None


MOST_HEARD = 1 << 20  # characters of a stream that are kept for its end

_documents = msgspec.json.Decoder(WireTranscript, strict=False)
_segments = msgspec.json.Decoder(WireSegment, strict=False)


class OpenAITranscription(OpenAIServer, Transcription):
    """`POST /audio/transcriptions` and `POST /audio/translations`."""

    transcription_fields: ClassVar[frozenset[str] | None] = None
    transcript_formats = frozenset({"json", "text", "srt", "vtt", "verbose_json", "diarized_json"})

    def can_translate(self, target: Target) -> bool:
        if self.options.translations is not None:
            return self.options.translations
        return self.quirks.translates and (not self.official or "whisper" in target.model)

    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """One document."""
        form = transcription_form(request, target, self.options, stream=False)
        async with await self.post(TRANSLATIONS if request.translates else PATH, form, target) as answer:
            return read_answer(await answer.read(), answer.headers.get("Content-Type", ""), self.hidden)

    async def stream_transcript(self, request: TranscriptionRequest, target: Target) -> AsyncIterator[TranscriptEvent]:
        """Text as it is heard."""
        form = transcription_form(request, target, self.options, stream=True)
        async with await self.post(PATH, form, target) as answer:
            media_type = answer.headers.get("Content-Type", "")
            if not media_type.startswith("text/event-stream"):  # a model that does not stream
                transcript = read_answer(await answer.read(), media_type, self.hidden)
                yield TranscriptEvent(delta=transcript.text)
                yield TranscriptEvent(done=transcript)
                return
            reader = EventReader(self.hidden)
            while events := await answer.read_events():
                for event in events:
                    step = reader.read(event)
                    if step is not None:
                        yield step
                    if step is not None and step.done is not None:
                        answer.release()
                        return
            raise UpstreamTruncated()


def transcription_form(
    request: TranscriptionRequest, target: Target, options: SharedOptions, *, stream: bool
) -> Multipart:
    """The form to send for `request` to `target`; the file goes last, so that a server knows what to do with it."""
    form = Multipart()
    for name, value in _fields(request, target, stream=stream):
        base, bracket, rest = name.partition("[")
        form.field(f"{options.rename.get(base, base)}{bracket}{rest}", value)
    file = request.file
    return form.file("file", file.chunks(), filename=file.filename, content_type=file.media_type, size=file.size)


def _fields(request: TranscriptionRequest, target: Target, *, stream: bool) -> Iterator[tuple[str, str]]:
    yield "model", target.model
    yield "response_format", ASKED.get(request.response_format, request.response_format)
    if stream:
        yield "stream", "true"
    for name in ("language", "prompt", "temperature"):
        value = getattr(request, name)
        if value is not None:
            yield name, str(value)
    for name in LISTS:
        for value in getattr(request, name):
            yield f"{name}[]", value
    strategy = request.chunking_strategy
    if isinstance(strategy, str):
        yield "chunking_strategy", strategy
    elif strategy is not None:
        for name, value in msgspec.to_builtins(strategy).items():
            if value is not None:
                yield f"chunking_strategy[{name}]", str(value)
    yield from (part for part in request.parts if part[0].partition("[")[0] in request.extra)


# Reading -------------------------------------------------------------------------------------------------------------


def read_answer(body: bytes, media_type: str, hidden: Sequence[str] = ()) -> Transcript:
    """The transcript in a whole answer, whatever form the server chose."""
    if is_event_stream(body):
        return _read_stream(body, hidden)
    first = body.lstrip()[:1]
    if media_type.startswith("text/") and first not in (b"{", b"<"):
        return _read_text(body)
    if first not in (b"{", b"<", b""):
        return _read_bare(body)
    return _read_document(body, hidden)


def _read_document(body: bytes, hidden: Sequence[str]) -> Transcript:
    found = decoded(_documents, body)
    if found.error:
        raise error_of_document(found.error, hidden)
    if found.spoken is None:
        raise UpstreamInvalidResponse(detail="a transcript without text")
    return _transcript(found)


def _read_bare(body: bytes) -> Transcript:
    """Text under the media type of a document: as it is, as a text of JSON, or in an array of segments."""
    try:
        bare = read_json(body)
    except UNREADABLE:
        is_broken = body.lstrip().startswith((b"[[", b"[{", b'["'))  # JSON; "[BLANK_AUDIO]" is text
        if is_broken or "\N{REPLACEMENT CHARACTER}" in body.decode("utf-8", "replace"):
            raise UpstreamInvalidResponse(detail="neither a document nor text") from None
        return _read_text(body)
    if isinstance(bare, str):
        return _read_text(bare.encode("utf-8", "replace"))
    if isinstance(bare, list):
        return _read_document(b'{"segments":%b}' % body, ())
    raise UpstreamInvalidResponse(detail=f"{type(bare).__name__} instead of a transcript")


def _read_stream(body: bytes, hidden: Sequence[str]) -> Transcript:
    """The transcript in the events of a stream that came whole; UpstreamTruncated if it has no end."""
    reader = EventReader(hidden)
    for event in events_of(body):
        step = reader.read(event)
        if step is not None and step.done is not None:
            return step.done
    raise UpstreamTruncated()


class EventReader:
    """Reads the events of one stream."""

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self._hidden = hidden
        self._heard: list[str] = []
        self._room = MOST_HEARD
        self._usage: Any = None

    def read(self, event: Event) -> TranscriptEvent | None:
        """The step in an event; None for one that says nothing. `[DONE]` is the end of what was heard."""
        if event.data == DONE_DATA:
            if not self._heard or self._room <= 0:
                return None
            return TranscriptEvent(done=Transcript("".join(self._heard).strip(), usage=read_usage(self._usage)))
        step, usage = read_event(event, self._hidden)
        self._usage = usage or self._usage
        if step is not None and step.delta:
            self._room -= len(step.delta)
            if self._room > 0:
                self._heard.append(step.delta)
        if step is not None and step.done is not None and not step.done.text:
            step.done.text = "".join(self._heard).strip()
        return step


def read_event(event: Event, hidden: Sequence[str] = ()) -> tuple[TranscriptEvent | None, Any]:
    """The step in an event, None for one that says nothing; and the usage of one in the form of a chat."""
    if event.name == "error":
        raise_error_event(event.data, hidden)
    found = decoded(_documents, event.data, surrogates=True)
    if found.error or found.type == "error":
        raise error_of_document(found.error or json_object(event.data), hidden)
    if found.type == DELTA:
        return TranscriptEvent(delta=found.delta or "", logprobs=found.logprobs), None
    if found.type == SEGMENT:
        return TranscriptEvent(segment=_segment(decoded(_segments, event.data))), None
    if found.type == DONE:
        return TranscriptEvent(done=_transcript(found)), None
    if isinstance(found.choices, list):
        text = "".join(map(_chat_text, found.choices))
        return TranscriptEvent(delta=text) if text else None, found.usage
    return None, None


def _chat_text(choice: Any) -> str:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    text = delta.get("content") if isinstance(delta, dict) else None
    return text if isinstance(text, str) else ""


def _transcript(found: WireTranscript) -> Transcript:
    segments = found.segments
    return Transcript(
        found.spoken or "",
        language=found.language if isinstance(found.language, str) else None,
        duration=_seconds(found.duration),
        segments=None if segments is None else [_segment(segment) for segment in segments],
        words=found.words,
        usage=read_usage(found.usage),
        logprobs=UNSET if found.logprobs is None else found.logprobs,
    )


def _segment(found: WireSegment) -> Segment:
    known = {name: value for name, value in structs.asdict(found).items() if value is not None}
    start = known.setdefault("start", 0.0)
    return Segment(**{"end": start, "text": "", **known})


def read_usage(document: Any) -> TranscriptUsage | None:
    """Usage in tokens or in seconds; None for anything else."""
    if not isinstance(document, dict):
        return None
    details = document.get("input_token_details")
    counts = {
        "seconds": document.get("seconds"),
        "input_tokens": document.get("input_tokens") or 0,
        "output_tokens": document.get("output_tokens") or 0,
        "audio_tokens": (details.get("audio_tokens") or 0) if isinstance(details, dict) else 0,
    }
    try:
        usage = msgspec.convert(counts, TranscriptUsage)
    except msgspec.ValidationError:
        return None
    return usage if usage.seconds is not None or usage.input_tokens or usage.output_tokens else None


def _seconds(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except ValueError:
        return None


def _read_text(body: bytes) -> Transcript:
    """Plain text, or the cues of SRT or VTT."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    segments = [Segment(_clock(start), _clock(end), words.strip()) for start, end, words in _CUE.findall(text)]
    if segments:
        return Transcript(" ".join(segment.text.replace("\n", " ") for segment in segments), segments=segments)
    return Transcript(text.strip())


def _clock(text: str) -> float:
    seconds = 0.0
    for part in text.replace(",", ".").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds

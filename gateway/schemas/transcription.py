"""The forms of `POST /v1/audio/transcriptions` and `/translations`, and what a provider answers (docs/fields.md).

`decode_transcription_request(parts, file)` and `decode_translation_request` make a typed request of the text fields of
a form; they raise nothing but `BadRequest` errors. Names may carry `[]` or a number in brackets, lists may be repeated
or written as a JSON array. Sharp edge: everything in a form is text, so a number or a word that does not fit is an
`invalid_type`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Protocol, Self

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field, structs

from gateway.errors import InvalidValue, MissingParameter
from gateway.schemas.duplicate_keys import key_names
from gateway.schemas.forbidden import header_name, is_forbidden
from gateway.schemas.request_fields import Core, RequestFields, Sampling, Semantic
from gateway.schemas.schema_errors import first_error, invalid, parse_json

TranscriptFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]

MAX_SPEAKERS = 4


class AudioFile(Protocol):
    """The uploaded audio, kept on disk: it may be read as often as there are attempts."""

    filename: str
    media_type: str  # "audio/mpeg", by extension, the part's own type or its first bytes, in this order
    size: int  # bytes
    seconds: float | None  # what its container's headers say; None when they do not

    def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes from the start, in pieces of at most 64 KiB; each call begins anew."""


class ServerVad(Struct):
    """How silence cuts the audio into chunks."""

    type: Literal["server_vad"]
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    silence_duration_ms: Annotated[int, Meta(ge=0, le=3_600_000)] | None = None
    prefix_padding_ms: Annotated[int, Meta(ge=0, le=3_600_000)] | None = None


class TranscriptionRequest(RequestFields, kw_only=True):
    """A valid transcription request; an absent field is None or empty."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    file: Core[AudioFile]
    language: Sampling[Annotated[str, Meta(pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8}){0,3}$(?!\n)")] | None] = None
    languages: Sampling[list[str]] = field(default_factory=list)
    prompt: Sampling[str | None] = None
    keywords: Sampling[list[str]] = field(default_factory=list)
    response_format: Core[TranscriptFormat] = "json"  # each provider says which it can fill
    temperature: Sampling[Annotated[float, Meta(ge=0, le=1)] | None] = None
    timestamp_granularities: Semantic[list[Literal["word", "segment"]]] = field(default_factory=list)
    include: Semantic[list[Literal["logprobs"]]] = field(default_factory=list)
    stream: Core[bool] = False
    chunking_strategy: Sampling[ServerVad | Literal["auto"] | None] = None
    known_speaker_names: Semantic[Annotated[list[str], Meta(max_length=MAX_SPEAKERS)]] = field(default_factory=list)
    known_speaker_references: Semantic[Annotated[list[str], Meta(max_length=MAX_SPEAKERS)]] = field(
        default_factory=list
    )

    #: The transcript is to be in English, whatever language is spoken.
    translates: bool = False
    #: Every text field as sent, in order, forbidden ones removed: for upstreams of the same dialect.
    parts: list[tuple[str, str]] = field(default_factory=list)

    def demands(self) -> frozenset[str]:
        """The semantic fields, but not segments, which `verbose_json` has anyway."""
        asked = {name for name, kind in self.field_classes.items() if kind == "semantic" and getattr(self, name)}
        if "word" not in self.timestamp_granularities:
            asked.discard("timestamp_granularities")
        return frozenset(asked)

    def without(self, names: Collection[str]) -> Self:
        """The same without those fields, known or not."""
        unset = {name: _ABSENT[name] for name in names if name in _ABSENT}
        return structs.replace(
            self,
            fields={name: raw for name, raw in self.fields.items() if name not in names},
            parts=[(name, text) for name, text in self.parts if name.partition("[")[0] not in names],
            **unset,
        )


class TranslationRequest(RequestFields, kw_only=True):
    """A valid form of a translation, whose fields are those of the `TranscriptionRequest` that a provider gets."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    file: Core[AudioFile]
    prompt: Sampling[str | None] = None
    response_format: Core[Literal["json", "text", "srt", "verbose_json", "vtt"]] = "json"
    temperature: Sampling[Annotated[float, Meta(ge=0, le=1)] | None] = None


class Word(Struct):
    """A word and its place in the audio, in seconds."""

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


# From a form's parts -------------------------------------------------------------------------------------------------

_NAME = re.compile(r"([^\[\]]+)(?:\[([^\[\]]*)\])?")  # "language", "languages[]", "chunking_strategy[type]"
_LISTS = frozenset(
    {"languages", "keywords", "timestamp_granularities", "include", "known_speaker_names", "known_speaker_references"}
)
_NUMBERS = frozenset({"temperature", "threshold", "silence_duration_ms", "prefix_padding_ms"})
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_FLAGS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False}
_ABSENT: Mapping[str, Any] = {
    name: [] if name in _LISTS else None for name, kind in TranscriptionRequest.field_classes.items() if kind != "core"
}


def decode_transcription_request(parts: Sequence[tuple[str, str]], file: AudioFile | None) -> TranscriptionRequest:
    """The request that a form's text fields and its file make; raises only BadRequest errors."""
    return _request(parts, file, TranscriptionRequest)


def decode_translation_request(parts: Sequence[tuple[str, str]], file: AudioFile | None) -> TranscriptionRequest:
    """The same for a form of a translation; a field that only transcriptions have is an unknown one."""
    request = _request(parts, file, TranslationRequest)
    request.translates = True
    return request


def _request(
    parts: Sequence[tuple[str, str]], file: AudioFile | None, known: type[RequestFields]
) -> TranscriptionRequest:
    form = _Form(parts, known)
    if file is None:
        raise MissingParameter("Missing required parameter: 'file'.", param="file")
    if "model" not in form.values:
        raise MissingParameter("Missing required parameter: 'model'.", param="model")
    kinds = _kinds(known)
    for name, value in form.values.items():
        error = first_error(value, kinds[name], name)
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame, and so the upload, until the garbage collector comes
    strategy = form.values.get("chunking_strategy")
    if isinstance(strategy, dict):
        form.values["chunking_strategy"] = msgspec.convert(strategy, ServerVad)
    request = TranscriptionRequest(file=file, **form.values)
    request.parts, request.extra, request.dropped = form.parts, tuple(form.extra), tuple(form.dropped)
    request.fields = {name: Raw(b"true") for name in (*form.values, *form.extra)}  # present is all that matters
    _check(request)
    return request


class _Form:
    """The text fields of a form, brought to the types they should have; what cannot be stays text."""

    def __init__(self, parts: Sequence[tuple[str, str]], known: type[RequestFields]) -> None:
        self._known = known.field_classes
        self.values: dict[str, Any] = {}
        self.parts: list[tuple[str, str]] = []
        self.extra: dict[str, None] = {}
        self.dropped: list[str] = []
        for name, text in parts:
            self._take(name, text)

    def _take(self, name: str, text: str) -> None:
        match = _NAME.fullmatch(name)
        base, inner = (match[1], match[2]) if match else (name, None)
        if not text and base != "model":
            return  # an empty field is an absent one: a form has no null
        if base in self._known and base != "file":
            self._take_known(base, inner, text)
        elif is_forbidden(base) or (inner and is_forbidden(inner)):
            self.dropped.append(header_name(name))
            return
        else:
            self.extra[base] = None
        self.parts.append((name, text))

    def _take_known(self, name: str, inner: str | None, text: str) -> None:
        values = self.values
        if name in _LISTS:
            if items := _items(text):
                values.setdefault(name, []).extend(items)
        elif name == "chunking_strategy" and inner:
            options = values.setdefault(name, {})
            if not isinstance(options, dict) or inner in options:
                raise _repeated(name)
            options[inner] = _typed(inner, text)
        elif inner is not None and inner != "":
            raise invalid(name, f"it has no field '{header_name(inner)}'")
        elif name in values:
            raise _repeated(name)
        else:
            values[name] = _typed(name, text)


def _repeated(name: str) -> InvalidValue:
    return invalid(name, "it was given more than once")


def _items(text: str) -> list[Any]:
    """One value of a list, or several as a JSON array."""
    if text.startswith("["):
        try:
            items = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return [text]
        if isinstance(items, list):
            return items
    return [text]


def _typed(name: str, text: str) -> Any:
    """`text` as the type that the field of that name has, if it can be."""
    if name == "stream":
        return _FLAGS.get(text.lower(), text)
    if name in _NUMBERS and _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if name == "chunking_strategy" and text.startswith("{"):
        key_names(text.encode())  # refuses a key that is there twice
        try:
            return parse_json(text.encode())
        except (ValueError, RecursionError):
            return text
    return text


@cache
def _kinds(known: type[RequestFields]) -> dict[str, Any]:
    """msgspec's description of each field's type."""
    kind = msgspec.inspect.type_info(known)
    assert isinstance(kind, msgspec.inspect.StructType)
    return {field.name: field.type for field in kind.fields}


def _check(request: TranscriptionRequest) -> None:
    """The rules across fields."""
    if request.timestamp_granularities and request.response_format != "verbose_json":
        raise invalid("timestamp_granularities", "they need 'response_format' to be 'verbose_json'")
    if len(request.known_speaker_names) != len(request.known_speaker_references):
        raise invalid("known_speaker_references", "there must be as many as 'known_speaker_names'")
    for index, reference in enumerate(request.known_speaker_references):
        if not reference[:11].lower().startswith("data:audio/"):
            param = f"known_speaker_references[{index}]"
            raise invalid(param, "expected a data URL of audio")

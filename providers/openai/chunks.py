"""Answers of OpenAI-compatible servers, read into the gateway's shapes: chunks of a stream, and whole completions.

What is shaped as OpenAI's own goes through one typed decode (1.5 µs a chunk); whatever that decode refuses is taken
apart and put right in `repair`. Vendors' other names for reasoning, finish reasons and usage are translated here.
Sharp edge: the wire structs extend the gateway's with fields that must be UNSET again before they leave, since the
gateway encodes what it gets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from gateway import (
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    Choice,
    ChunkChoice,
    CompletionUsage,
    Delta,
    Event,
    completion_usage,
)
from gateway.errors import UpstreamError, UpstreamInvalidResponse, UpstreamOverloaded
from gateway.plugins.upstream_errors import error_of_document
from gateway.schemas.answer_surrogates import WaitingSurrogates
from gateway.schemas.chat_response import FINISH_REASONS as WIRE_REASONS

from .._shared.documents import UNREADABLE, raise_error_event
from .._shared.failed_finish import check_finish
from .._shared.fitting import fitted_value
from .._shared.whole_stream import chunk_of
from .call_numbers import CallNumbers
from .logprobs import standard_logprobs
from .repair import keep_surrogates_in_texts, repaired
from .unnamed_errors import raise_unnamed_error

# What vendors call OpenAI's reasons, in lower case. Unknown ones of whole answers go through, and the gateway decides.
FINISH_REASONS = {
    **{reason: reason for reason in WIRE_REASONS},
    "complete": "stop",
    "end": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "model_length": "length",
    "max_length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "safety": "content_filter",
    "sensitive": "content_filter",
}
FAILED_REASONS: dict[str, type[UpstreamError]] = {"insufficient_system_resource": UpstreamOverloaded}

_NULL = Raw(b"null")
if TYPE_CHECKING:
    Undecoded = Any
else:
    Undecoded = Raw  # read later, without the detour over a dict
_REASONED = re.compile(rb'"reasoning_tokens"\s*:\s*[^0\s]')  # a count other than 0


class WireDelta(Delta):
    """A delta with the other names of `reasoning_content`, and null where the gateway has absence."""

    reasoning: str | UnsetType | None = UNSET
    thinking: str | UnsetType | None = UNSET
    audio: Any = UNSET
    annotations: Any = UNSET
    reasoning_details: Any = UNSET
    thinking_blocks: Any = UNSET
    images: Any = UNSET


class WireChunkChoice(ChunkChoice):
    """A choice of a chunk."""

    delta: WireDelta = field(default_factory=WireDelta)
    logprobs: Any = None


class WireChunk(ChatChunk):
    """A chunk, the fields that the gateway replaces taken as they come."""

    id: Any = ""
    object: Any = ""
    created: Any = 0
    model: Any = ""
    choices: list[WireChunkChoice] = field(default_factory=list)  # type: ignore[assignment]  # what is decoded
    usage: Any = UNSET
    moderation: Any = UNSET
    error: Any = UNSET
    x_groq: Any = UNSET


class WireMessage(ChatMessage):
    """A message with the other names of `reasoning_content`."""

    reasoning: str | UnsetType | None = UNSET
    thinking: str | UnsetType | None = UNSET
    audio: Any = UNSET
    reasoning_details: Any = UNSET
    thinking_blocks: Any = UNSET
    images: Any = UNSET


class WireChoice(Choice):
    """A choice of a completion."""

    message: WireMessage = field(default_factory=WireMessage)
    logprobs: Any = None


class WireCompletion(ChatCompletion):
    """A completion, the fields that the gateway replaces taken as they come."""

    id: Any = ""
    object: Any = ""
    created: Any = 0
    model: Any = ""
    choices: list[WireChoice] = field(default_factory=list)  # type: ignore[assignment]  # what is decoded
    usage: Undecoded = _NULL
    metadata: Any = UNSET
    moderation: Any = UNSET
    error: Any = UNSET
    x_groq: Any = UNSET


_SILENCE = WireDelta()
_chunk_decoder = msgspec.json.Decoder(WireChunk)
_completion_decoder = msgspec.json.Decoder(WireCompletion)


class ChunkReader:
    """Reads the events of one stream; `finished` while a finish reason is the last part of every choice that began."""

    __slots__ = ("_calls", "_ended", "_hidden", "_open", "_surrogates", "_unknown")

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self._hidden = hidden
        self._open: tuple[int, ...] = ()  # choices that have begun; a set takes 200 bytes of every stream
        self._ended: tuple[int, ...] = ()  # those whose last part was a finish reason
        self._unknown = ""  # a finish reason that is no known one
        self._calls: dict[int, CallNumbers] = {}  # by choice
        self._surrogates = WaitingSurrogates()  # in documents inside of chunks; those in texts are the encoder's

    @property
    def finished(self) -> bool:
        """A finish reason has come, for every choice, and no content after it."""
        return 0 < len(self._ended) == len(self._open)

    def end(self) -> ChatChunk | None:
        """The last chunk of a complete stream: calls without a name, and missing finishes; None if there are none."""
        parts = [self._last_part(index) for index in self._open if index not in self._ended or index in self._calls]
        parts = [part for part in parts if part.finish_reason is not None or part.delta.tool_calls]
        return ChatChunk(choices=parts) if parts else None

    def _last_part(self, index: int) -> ChunkChoice:
        waiting = self._calls[index].nameless() if index in self._calls else []
        reason = None if index in self._ended else self._unknown or "stop"
        return ChunkChoice(index, Delta(tool_calls=waiting or UNSET), finish_reason=reason)

    def read(self, event: Event) -> ChatChunk | None:
        """The chunk in `event`; None for one that says nothing, such as Azure's prelude."""
        if event.name == "error":
            raise_error_event(event.data, self._hidden)
        try:
            chunk: WireChunk = _chunk_decoder.decode(event.data)
        except UNREADABLE:
            chunk = _decode_repaired(_chunk_decoder, event.data, "delta", self._surrogates)
        if chunk.object == "error":
            raise_error_event(event.data, self._hidden)
        if chunk.error is not UNSET or chunk.x_groq is not UNSET:
            _raise_error(chunk, self._hidden)
        if chunk.usage is not UNSET:
            chunk.usage = read_usage(chunk.usage) or UNSET
        for part in chunk.choices:
            self._read_choice(part)
        if not chunk.object:  # Azure's verdicts on text that went before
            chunk.choices = [part for part in chunk.choices if not _says_nothing(part)]
        if chunk.moderation is None:
            chunk.moderation = UNSET
        if not chunk.choices and chunk.usage is UNSET and chunk.moderation is UNSET:
            raise_unnamed_error(event.data, self._hidden)
            return None
        return chunk

    def read_whole(self, body: bytes) -> ChatChunk:
        """A whole completion as a single chunk, from a server that does not stream."""
        return chunk_of(read_completion(body, self._hidden))

    def _read_choice(self, part: WireChunkChoice) -> None:
        delta = part.delta
        if part.index not in self._open:
            self._open += (part.index,)
        if delta.reasoning is not UNSET or delta.thinking is not UNSET:
            _merge_reasoning(delta)
        if delta.tool_calls:
            calls = self._calls.get(part.index)
            if calls is None:
                calls = self._calls[part.index] = CallNumbers()
            delta.tool_calls = calls.numbered(delta.tool_calls) or UNSET
        _drop_nulls(delta)
        if part.logprobs is not None:
            part.logprobs = standard_logprobs(part.logprobs)
        if part.finish_reason is not None:
            self._read_finish(part)
        elif self._ended and delta.continues:  # the finish before was none: some servers send one after every chunk
            self._ended = tuple(index for index in self._ended if index != part.index)

    def _read_finish(self, part: WireChunkChoice) -> None:
        reason = read_finish(part.finish_reason or "")
        if reason not in WIRE_REASONS:
            self._unknown, part.finish_reason = reason, None
            return
        part.finish_reason = reason
        if part.index not in self._ended:
            self._ended += (part.index,)


def read_text(data: bytes) -> str | None:
    """The text of the one choice in the data of a chunk; None for any other chunk."""
    try:
        choices = _chunk_decoder.decode(data).choices
    except UNREADABLE:
        return None
    text = choices[0].delta.content if len(choices) == 1 else None
    return text if isinstance(text, str) else None


def read_completion(body: bytes, hidden: Sequence[str] = ()) -> ChatCompletion:
    """The completion in a JSON body; an error that rides in it is raised."""
    try:
        answer: WireCompletion = _completion_decoder.decode(body)
    except UNREADABLE:
        answer = _decode_repaired(_completion_decoder, body, "message", None)
    if answer.object == "error":
        raise_error_event(body, hidden)
    if answer.error is not UNSET or answer.x_groq is not UNSET:
        _raise_error(answer, hidden)
    if not answer.choices:
        raise_unnamed_error(body, hidden)
        raise UpstreamInvalidResponse(detail="an answer without choices")
    answer.usage = read_usage(answer.usage)
    if answer.metadata is None:
        answer.metadata = UNSET
    if answer.moderation is None:
        answer.moderation = UNSET
    for choice in answer.choices:
        message = choice.message
        if message.reasoning is not UNSET or message.thinking is not UNSET:
            _merge_reasoning(message)
        _drop_nulls(message)
        if choice.logprobs is not None:
            choice.logprobs = standard_logprobs(choice.logprobs)
        if choice.finish_reason != "stop":
            choice.finish_reason = read_finish(choice.finish_reason or "")
    return answer


def read_finish(reason: str) -> str:
    """OpenAI's word for a vendor's finish reason; raises for one that means failure."""
    word = reason.lower()
    failure = FAILED_REASONS.get(word)
    if failure is not None:
        raise failure(detail=f"finish reason {reason!r}")
    check_finish(reason)
    return FINISH_REASONS.get(word, word)


def read_usage(document: Any) -> CompletionUsage | None:
    """Usage by any vendor's habits; None when there is none that could be right."""
    if isinstance(document, Raw):
        if document == _NULL:
            return None
        usage = completion_usage(document)
        if usage is not None and usage.completion_tokens and not usage.completion_tokens_details.reasoning_tokens:
            return usage
        if _REASONED.search(document) is None:
            return usage
        try:
            document = msgspec.json.decode(document)
        except UNREADABLE:  # an answer is read without reading its numbers
            return None
    if not isinstance(document, dict):
        return None
    details = document.get("completion_tokens_details")
    if isinstance(details, dict) and details.get("reasoning_tokens"):
        document = _with_reasoning_inside(document, details["reasoning_tokens"])
    return completion_usage(document)


def _with_reasoning_inside(document: dict[str, Any], reasoning: Any) -> dict[str, Any]:
    """xAI counts reasoning beside the completion, which the total gives away; everyone else counts it inside."""
    prompt, completion, total = (document.get(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if not all(isinstance(count, int) for count in (prompt, completion, total, reasoning)):
        return document
    if total == prompt + completion + reasoning:  # type: ignore[operator]
        return {**document, "completion_tokens": completion + reasoning}
    return document


def _decode_repaired(
    decoder: msgspec.json.Decoder[Any], data: bytes, inner: str, surrogates: WaitingSurrogates | None
) -> Any:
    try:
        document = repaired(data, inner)
        try:
            return decoder.decode(msgspec.json.encode(document))
        except UnicodeEncodeError:
            keep_surrogates_in_texts(document, inner, surrogates)
            return fitted_value(document, decoder.type, strict=True)
    except UNREADABLE as error:
        raise UpstreamInvalidResponse(detail=f"{type(error).__name__}: {error}"[:300]) from None


def _raise_error(answer: WireChunk | WireCompletion, hidden: Sequence[str]) -> None:
    """Raise the error an answer carries, if it does; put away what Groq adds otherwise."""
    groq = answer.x_groq if isinstance(answer.x_groq, dict) else {}
    error = answer.error or groq.get("error")
    if error:
        raise error_of_document(error, hidden)
    if isinstance(groq.get("usage"), dict):
        answer.usage = groq["usage"]
    answer.error = answer.x_groq = UNSET


def _says_nothing(part: WireChunkChoice) -> bool:
    return part.finish_reason is None and part.logprobs is None and part.delta == _SILENCE


def _merge_reasoning(message: WireDelta | WireMessage) -> None:
    message.reasoning_content = message.reasoning_content or message.reasoning or message.thinking
    message.reasoning = message.thinking = UNSET


def _drop_nulls(message: WireDelta | WireMessage) -> None:
    """Nulls for absence, as several servers write them, would otherwise be passed on."""
    if message.audio is None:
        message.audio = UNSET
    if message.reasoning_details is None:
        message.reasoning_details = UNSET
    if message.thinking_blocks is None:
        message.thinking_blocks = UNSET
    if message.images is None:
        message.images = UNSET
    if message.annotations is None:
        message.annotations = UNSET
    if message.function_call is None:
        message.function_call = UNSET
    if message.reasoning_content is None:
        message.reasoning_content = UNSET

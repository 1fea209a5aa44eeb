"""The counts of the Realtime API as buckets of a bill: of a response, and of a transcript of what the caller said."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, structs

from gateway.billing.usage import MAX_SECONDS, MAX_TOKENS, Usage
from gateway.schemas.chat_response import CompletionTokensDetails, CompletionUsage, PromptTokensDetails

INPUT_PER_SECOND = 10  # tokens of audio that is sent, from published numbers
IMAGE_TOKENS = 1100  # of an image of unknown size

Count = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
_SUMMED = tuple(field.name for field in structs.fields(Usage) if field.type in (int, float))


class _Cached(Struct):
    audio_tokens: Count | None = 0
    image_tokens: Count | None = 0


class _In(Struct):
    audio_tokens: Count | None = 0
    image_tokens: Count | None = 0
    cached_tokens: Count | None = 0
    cached_tokens_details: _Cached | None = None


class _Out(Struct):
    audio_tokens: Count | None = 0
    reasoning_tokens: Count | None = 0


class _Counts(Struct):
    input_tokens: Count | None = 0
    output_tokens: Count | None = 0
    input_token_details: _In | None = None
    output_token_details: _Out | None = None


class _Transcript(_Counts):
    seconds: Any = None


_counts = msgspec.json.Decoder(_Counts)
_transcript = msgspec.json.Decoder(_Transcript)


def response_usage(raw: Raw) -> Usage | None:
    """The buckets of `response.usage`; None if it is empty or null, or if it has impossible counts."""
    try:
        counts = _counts.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return _of_counts(counts) if counts.input_tokens or counts.output_tokens else None


def transcript_usage(raw: Raw, *, by_second: bool) -> Usage | None:
    """The buckets of a transcript's usage, in tokens or in seconds; None as with `response_usage`.

    Seconds count as tokens of audio unless the price is `by_second`.
    """
    try:
        counts = _transcript.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if counts.input_tokens or counts.output_tokens:
        return structs.replace(_of_counts(counts), requests=0)
    seconds = counts.seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_SECONDS:
        return None
    return of_seconds(seconds, by_second=by_second)


def of_seconds(seconds: float, *, by_second: bool) -> Usage:
    """The usage of a transcript of so much audio."""
    if by_second:
        return Usage(requests=0, audio_seconds_in=float(seconds))
    return Usage(requests=0, in_audio=-int(-seconds * INPUT_PER_SECOND // 1))


def sum_of(first: Usage, second: Usage) -> Usage:
    """Both together."""
    both: dict[str, Any] = {name: getattr(first, name) + getattr(second, name) for name in _SUMMED}
    return structs.replace(first, **both, estimated=first.estimated or second.estimated)


def _of_counts(counts: _Counts) -> Usage:
    inside, outside = counts.input_token_details or _In(), counts.output_token_details or _Out()
    cached = inside.cached_tokens_details or _Cached()
    prompt, completion = counts.input_tokens or 0, counts.output_tokens or 0
    audio, image = inside.audio_tokens or 0, inside.image_tokens or 0
    usage = CompletionUsage(
        prompt,
        completion,
        prompt + completion,
        # Cached images are in both counts; they are charged as cached.
        PromptTokensDetails(inside.cached_tokens or 0, audio, image_tokens=max(0, image - (cached.image_tokens or 0))),
        CompletionTokensDetails(outside.reasoning_tokens or 0, outside.audio_tokens or 0),
        cached_audio_tokens=cached.audio_tokens or 0,
    )
    return Usage.of_chat(usage)

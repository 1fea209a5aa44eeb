"""`POST /v1/audio/transcriptions`: a form with audio in, its text out, as a document, subtitles or events.

`POST /v1/audio/translations` is the same with the text in English, and without events.

The hold follows the duration in the headers of the file, the charge follows the upstream's count. Sharp edge: models of
the whisper family ignore `stream`, so their answer is always a document.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

from msgspec import structs

from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import with_safety
from gateway.billing.usage import Usage, text_units, tokens_of
from gateway.billing.usage_bounds import Bounds, bound_usage
from gateway.catalog import Model
from gateway.encoders.transcript_formats import done_frame, is_possible, typed_transcript, write_transcript
from gateway.encoders.transcripts import TranscriptStreamEncoder
from gateway.errors import InvalidValue, UnsupportedParameter, UnsupportedValue, UpstreamRejected
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.services import Services
from gateway.log import gateway_log
from gateway.plugins.provider import Transcription
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.transcription import (
    Transcript,
    TranscriptEvent,
    TranscriptionRequest,
    TranscriptUsage,
    decode_transcription_request,
    decode_translation_request,
)
from gateway.uploads.upload import UploadedForm

#: Bytes per second of audio without a duration in its headers: for the charge, and for the hold.
UNKNOWN_RATE = 16_000
LEAST_RATE = 4_000
#: The lowest possible bytes per second of audio; a count of more seconds than that is impossible.
SLOWEST_RATE = 100
#: Tokens of audio in a second for the charge, and the most tokens of text and of audio in a second.
AUDIO_PER_SECOND = 10
MOST_TEXT_PER_SECOND = 8
MOST_AUDIO_PER_SECOND = 20
#: Formats in which Whisper models do not tell the seconds.
UNTIMED = frozenset({"json", "text"})
#: Formats that cannot be streamed.
TIMED = frozenset({"srt", "vtt", "verbose_json"})


class TranscriptionsEndpoint(Endpoint[TranscriptionRequest]):
    """Speech to text."""

    name = "transcription"
    capability = Transcription
    answers = Transcript
    prompt_param = "file"

    # Before the call -------------------------------------------------------------------------------------------------

    def decode(self, body: UploadedForm, account: str, services: Services) -> TranscriptionRequest:
        return decode_transcription_request(body.form.texts, body.upload)

    def wants_stream(self, request: TranscriptionRequest) -> bool:
        return request.stream

    def quote(
        self,
        request: TranscriptionRequest,
        model: Model,
        body_size: int,
        adapted: Sequence[Adapted[TranscriptionRequest]] = (),
    ) -> Quote:
        if request.stream and not _can_stream(model):
            request.stream = False
        if request.stream and request.response_format in TIMED:
            raise InvalidValue(
                f"Invalid 'response_format': '{request.response_format}' cannot be streamed.",
                param="response_format",
            )
        size, claimed = request.file.size, request.file.seconds
        likely = claimed or size / UNKNOWN_RATE
        longest = claimed * 1.25 + 1 if claimed else size / LEAST_RATE + 1
        text = tokens_of(text_units(request.prompt or "") + sum(map(text_units, request.keywords)))
        return _quote(model, text, likely, longest=longest)

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        return _quote(model, 0, size.seconds, longest=size.seconds * 1.25 + 1)

    def check_candidate(self, request: TranscriptionRequest, candidate: Candidate) -> None:
        if request.response_format not in _provider(candidate).transcript_formats:
            raise UnsupportedValue(
                f"This model does not support '{request.response_format}' as response format.", param="response_format"
            )

    # The call --------------------------------------------------------------------------------------------------------

    async def attempt(self, adapted: Adapted[TranscriptionRequest]) -> Transcript:
        candidate, request = adapted.candidate, adapted.request
        transcribe = _provider(candidate).transcribe
        if _hides_seconds(request, candidate):
            # The caller still gets the format of the original request.
            timed = structs.replace(request, response_format="verbose_json")
            try:
                return typed_transcript(await transcribe(timed, candidate.target))
            except UpstreamRejected as error:
                if "response_format" not in f"{error.param} {error}":
                    raise
        return typed_transcript(await transcribe(request, candidate.target))

    def attempt_stream(self, adapted: Adapted[TranscriptionRequest]) -> AsyncIterator[TranscriptEvent]:
        return _provider(adapted.candidate).stream_transcript(adapted.request, adapted.candidate.target)

    async def encode(self, call: Call, answer: Transcript, services: Services) -> tuple[bytes, str]:
        used = call.used = _count(call, answer)
        _add_usage(answer, used)
        if used.estimated:
            call.reply.headers["x-gateway-estimated"] = "true"
        media_type, body = write_transcript(answer, call.request)
        return body, media_type

    def stream_encoder(
        self, call: Call, opened: Opened[TranscriptEvent], services: Services
    ) -> TranscriptStreamEncoder:
        return TranscriptStreamEncoder(call.request)

    def last_frames(self, call: Call, frames: bytes) -> bytes:
        transcript = call.encoder.transcript
        used = call.used = _count(call, transcript)
        _add_usage(transcript, used)
        return done_frame(transcript)

    # The end ---------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        encoder: TranscriptStreamEncoder | None = call.encoder
        if encoder is None or not encoder.content_started:
            return None
        if encoder.transcript is not None:
            return _count(call, encoder.transcript)
        return _heard(call, encoder.delivered.text_quarter_tokens)


class TranslationsEndpoint(TranscriptionsEndpoint):
    """Speech in any language to English text."""

    name = "translation"
    permission = "transcription"

    def decode(self, body: UploadedForm, account: str, services: Services) -> TranscriptionRequest:
        return decode_translation_request(body.form.texts, body.upload)

    def check_candidate(self, request: TranscriptionRequest, candidate: Candidate) -> None:
        if not _provider(candidate).can_translate(candidate.target):
            raise UnsupportedParameter("This model does not translate speech.", param="model")
        super().check_candidate(request, candidate)


def _quote(model: Model, text: int, likely: float, *, longest: float) -> Quote:
    prompt = Usage(audio_seconds_in=round(likely, 6), estimated=True)
    worst = Usage(audio_seconds_in=round(longest, 6), estimated=True)
    if _counts_tokens(model.price):
        prompt = structs.replace(prompt, in_text=text, in_audio=int(likely * AUDIO_PER_SECOND) + 1)
        worst = structs.replace(
            worst,
            in_text=with_safety(text),
            in_audio=int(longest * MOST_AUDIO_PER_SECOND) + 1,
            out_text=int(longest * MOST_TEXT_PER_SECOND) + 1,
        )
    return Quote.of(model, prompt=prompt, worst_case=worst)


def _hides_seconds(request: TranscriptionRequest, candidate: Candidate) -> bool:
    """Whether the price is per second and the model tells the seconds in `verbose_json` only, as Whisper models do."""
    return (
        request.response_format in UNTIMED
        and not request.include
        and "whisper" in candidate.target.model.lower()
        and bool(candidate.model.price.per_second_in)
        and "verbose_json" in _provider(candidate).transcript_formats
    )


def _drop_impossible(call: Call, transcript: Transcript) -> None:
    """Remove counts that are impossible, so that an estimate stands in their place; logged unless all are zero."""
    counts, most = transcript.usage, _most_seconds(call.request)
    wrong = transcript.duration is not None and not 0 <= transcript.duration <= most
    if wrong:
        transcript.duration = None
    if counts is not None and (not is_possible(counts) or (counts.seconds or 0) > most):
        transcript.usage = None
        wrong = wrong or any((counts.seconds, counts.input_tokens, counts.output_tokens, counts.audio_tokens))
    if wrong:
        gateway_log.warning("%s: impossible counts from %s, estimated", call.request_id, call.provider)


def _count(call: Call, transcript: Transcript) -> Usage:
    """The usage of a whole transcript; a part that the upstream did not count, or cannot have, is estimated."""
    _drop_impossible(call, transcript)
    reported = transcript.usage or TranscriptUsage()
    used = _heard(call, text_units(transcript.text))
    seconds = transcript.duration if reported.seconds is None else reported.seconds
    if seconds is not None:
        used = structs.replace(used, audio_seconds_in=seconds)
    tokens = bool(reported.input_tokens or reported.output_tokens)
    if tokens:
        audio = min(reported.audio_tokens, reported.input_tokens)
        text = reported.input_tokens - audio
        used = structs.replace(used, in_text=text, in_audio=audio, out_text=reported.output_tokens)
    by_seconds, by_tokens = bool(call.quote.price.per_second_in), _counts_tokens(call.quote.price)
    guessed = (seconds is None and (by_seconds or not tokens)) or (by_tokens and not tokens)
    used = structs.replace(used, estimated=guessed)
    if not tokens:
        return used
    worst = call.quote.worst_case
    bounds = Bounds(call.body_size, media=call.quote.prompt.in_audio, limit=worst.out_text or None)
    return call.accept_count(bound_usage(used, bounds, _heard(call, text_units(transcript.text))))


def _add_usage(transcript: Transcript, used: Usage) -> None:
    """Add the usage to an answer without one."""
    if transcript.usage is None:
        transcript.usage = TranscriptUsage(seconds=used.audio_seconds_in)


def _provider(candidate: Candidate) -> Transcription:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Transcription", candidate.provider)


def _most_seconds(request: TranscriptionRequest) -> float:
    return request.file.size / SLOWEST_RATE + 60


def _can_stream(model: Model) -> bool:
    """Whether the model can stream; one whose upstream names all begin with "whisper" cannot."""
    whisper = all(item.target.model.startswith("whisper") for item in model.targets)
    return not whisper and "stream" not in model.unsupported_params


def _counts_tokens(price: Price) -> bool:
    return bool(price.input or price.audio_input or price.output)


def _heard(call: Call, quarter_tokens: int) -> Usage:
    """The usage without an upstream count: the estimated audio, and the delivered text."""
    counted = _counts_tokens(call.quote.price)
    out = tokens_of(quarter_tokens, factor=call.model.token_factor) if counted else 0
    return structs.replace(call.quote.prompt, out_text=out)

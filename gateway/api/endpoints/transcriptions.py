"""`POST /v1/audio/transcriptions`: a form with a sound in, its words out, as a document, subtitles or events.

Each second of the sound is held for by what its headers claim, and charged by what the upstream counted. Sharp edge:
models of the whisper family ignore the wish for a stream, so whoever asks for one gets a document from them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from msgspec import structs

from gateway.api.multipart_body import FormHandler
from gateway.api.quote import Terms
from gateway.billing.price import Price
from gateway.billing.token_estimate import AUDIO_PER_SECOND, with_safety
from gateway.billing.usage import Usage, text_units, tokens_of
from gateway.catalog import Model
from gateway.encoders.transcript_formats import done_frame, sound_transcript, write_transcript
from gateway.encoders.transcripts import TranscriptStreamEncoder
from gateway.errors import (
    InvalidValue,
    UnsupportedValue,
)
from gateway.inference.call import Call
from gateway.plugins.provider import Transcription
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.transcription import (
    Transcript,
    TranscriptEvent,
    TranscriptionRequest,
    TranscriptUsage,
    decode_transcription_request,
)

if TYPE_CHECKING:
    pass

#: Bytes a second of a sound whose headers do not say, as it is charged and as it is held for.
UNKNOWN_RATE = 16_000
LEAST_RATE = 4_000
#: Bytes a second below which there is no sound worth the name: a count of more seconds is impossible.
SLOWEST_RATE = 100
#: Tokens of text and of sound that a second may have at most.
MOST_TEXT_PER_SECOND = 8
MOST_AUDIO_PER_SECOND = 20
#: Tokens beyond those of so many seconds from which on a count is impossible.
TOKEN_CEILING = 100_000
#: Formats that a stream of text has no place for.
TIMED = frozenset({"srt", "vtt", "verbose_json"})


class TranscriptionsHandler(FormHandler[TranscriptionRequest]):
    """Speech to text."""

    endpoint = "transcription"
    capability = Transcription
    answers = Transcript
    prompt_param = "file"
    roomy = frozenset({"known_speaker_references"})  # sounds of a few seconds, as data URLs
    request: TranscriptionRequest

    encoder: TranscriptStreamEncoder | None = None
    used: Usage | None = None

    # Terms -----------------------------------------------------------------------------------------------------------

    def decode(self, body: bytes) -> TranscriptionRequest:
        assert self.form is not None
        self.request = decode_transcription_request(self.form.texts, self.upload)
        return self.request

    def wants_stream(self, request: TranscriptionRequest) -> bool:
        return request.stream

    def price(self, request: TranscriptionRequest, model: Model) -> Terms[TranscriptionRequest]:
        if request.stream and not _can_stream(model):
            request.stream = False
        if request.stream and request.response_format in TIMED:
            raise InvalidValue(
                f"Invalid 'response_format': a stream has no place for '{request.response_format}'.",
                param="response_format",
            )
        self.adapt(request, model)
        size, claimed = request.file.size, request.file.seconds
        likely = claimed or size / UNKNOWN_RATE
        longest = claimed * 1.25 + 1 if claimed else size / LEAST_RATE + 1
        prompt = Usage(audio_seconds_in=round(likely, 6), estimated=True)
        worst = Usage(audio_seconds_in=round(longest, 6), estimated=True)
        if _counts_tokens(model.price):
            text = tokens_of(text_units(request.prompt or "") + sum(map(text_units, request.keywords)))
            prompt = structs.replace(prompt, in_text=text, in_audio=int(likely * AUDIO_PER_SECOND) + 1)
            worst = structs.replace(
                worst,
                in_text=with_safety(text),
                in_audio=int(longest * MOST_AUDIO_PER_SECOND) + 1,
                out_text=int(longest * MOST_TEXT_PER_SECOND) + 1,
            )
        ceiling = int(_most_seconds(request) * MOST_AUDIO_PER_SECOND) + TOKEN_CEILING
        return Terms(request, model, prompt, worst, (ceiling, ceiling))

    def check_candidate(self, request: TranscriptionRequest, candidate: Candidate) -> None:
        if request.response_format not in _transcription(candidate).transcript_formats:
            raise UnsupportedValue(
                f"This model does not support '{request.response_format}' as response format.", param="response_format"
            )

    # The answer ------------------------------------------------------------------------------------------------------

    async def serve(self, call: Call, request: TranscriptionRequest) -> None:
        if call.stream:
            await self._serve_stream(call, request)
        else:
            await self._serve_whole(call, request)

    async def _serve_whole(self, call: Call, request: TranscriptionRequest) -> None:
        async def attempt(adapted: Adapted[TranscriptionRequest]) -> Transcript:
            provider = _transcription(adapted.candidate)
            return sound_transcript(await provider.transcribe(adapted.request, adapted.candidate.target))

        transcript = await self.call_whole(call, attempt)
        self.used = self._count(call, transcript)
        self._tell_usage(transcript, self.used)
        if self.used.estimated:
            self.tell_estimated()
        media_type, body = write_transcript(transcript, request)
        self.deliver(call, body, media_type=media_type)

    async def _serve_stream(self, call: Call, request: TranscriptionRequest) -> None:
        def attempt(adapted: Adapted[TranscriptionRequest]) -> AsyncIterator[TranscriptEvent]:
            return _transcription(adapted.candidate).stream_transcript(adapted.request, adapted.candidate.target)

        opened = await self.open_stream(call, attempt)
        encoder = self.encoder = TranscriptStreamEncoder(request)
        await self.relay(call, opened, encoder)
        assert encoder.transcript is not None
        self.used = self._count(call, encoder.transcript)
        self._tell_usage(encoder.transcript, self.used)
        self.end_stream(call, done_frame(encoder.transcript))

    # The bill --------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        if self.used is not None:
            return self.used
        if self.encoder is not None and self.encoder.content_started:
            if self.encoder.transcript is not None:
                return self._count(call, self.encoder.transcript)
            return _heard(call, self.encoder.delivered_units)
        if self.client_gone and call.attempts:
            return call.prompt  # the upstream was already listening to it
        return None

    def _count(self, call: Call, transcript: Transcript) -> Usage:
        """What a whole transcript used; what nobody upstream counted is estimated."""
        told = transcript.usage or TranscriptUsage()
        used = _heard(call, text_units(transcript.text))
        seconds = transcript.duration if told.seconds is None else told.seconds
        if seconds is not None:
            if not 0 <= seconds <= _most_seconds(self.request):
                return call.worst_case  # absurd, as a count of tokens beyond the ceiling is
            used = structs.replace(used, audio_seconds_in=seconds)
        tokens = bool(told.input_tokens or told.output_tokens)
        if tokens:
            audio = min(told.audio_tokens, told.input_tokens)
            used = structs.replace(used, in_text=told.input_tokens - audio, in_audio=audio, out_text=told.output_tokens)
        by_seconds, by_tokens = bool(call.price.per_second_in), _counts_tokens(call.price)
        guessed = (seconds is None and (by_seconds or not tokens)) or (by_tokens and not tokens)
        return structs.replace(used, estimated=guessed)

    def _tell_usage(self, transcript: Transcript, used: Usage) -> None:
        """The answer always says what it took."""
        if transcript.usage is None:
            transcript.usage = TranscriptUsage(seconds=used.audio_seconds_in)


def _transcription(candidate: Candidate) -> Transcription:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Transcription", candidate.provider)


def _most_seconds(request: TranscriptionRequest) -> float:
    return request.file.size / SLOWEST_RATE + 60


def _can_stream(model: Model) -> bool:
    """Models of the whisper family have no stream, and ignore the wish; the names are those of their upstreams."""
    whisper = all(item.target.model.startswith("whisper") for item in model.targets)
    return not whisper and "stream" not in model.unsupported_params


def _counts_tokens(price: Price) -> bool:
    return bool(price.input or price.audio_input or price.output)


def _heard(call: Call, units: int) -> Usage:
    """The bill without upstream usage: the sound as estimated, and the text that was delivered."""
    out = tokens_of(units, factor=call.model.token_factor) if _counts_tokens(call.price) else 0
    return structs.replace(call.prompt, out_text=out)

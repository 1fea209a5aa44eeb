"""`POST /v1/audio/speech`: text in, audio out while it is made, as bytes or as events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import cast

from msgspec import structs

from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import speech_seconds, with_safety
from gateway.billing.usage import Usage, text_units, tokens_of
from gateway.billing.usage_bounds import NOTHING, Bounds, bound_usage
from gateway.catalog import Model
from gateway.encoders.speech import SpeechEventEncoder, SpeechStreamEncoder, done_event, given_format
from gateway.errors import UnsupportedValue
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.hold_extension import AudioHoldExtension
from gateway.inference.services import Services
from gateway.inference.sinks import ByteSink, EventSink
from gateway.ledger import Ledger
from gateway.log import gateway_log
from gateway.plugins.provider import Speech
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.speech import MEDIA_TYPES, SpeechChunk, SpeechRequest, SpeechUsage, decode_speech_request

#: Tokens per second of speech without an upstream count, from published prices per minute and per token; and the
#: tokens per second that are held.
TOKENS_PER_SECOND = 21
MOST_TOKENS_PER_SECOND = 32
#: How much longer than usual a spoken text may be: a factor, and seconds.
SLOW = 2, 5
#: Characters per token, where `gateway explain` gets only tokens.
CHARACTERS_PER_TOKEN = 4
#: Upstream models without events; other servers use OpenAI's names for them.
WITHOUT_EVENTS = ("tts-1", "tts-1-hd")


class SpeechEndpoint(Endpoint[SpeechRequest]):
    """Text to speech. Every provider answer is a stream; `call.stream` is True if the client gets events."""

    name = "speech"
    capability = Speech
    prompt_param = "input"

    # Before the call -------------------------------------------------------------------------------------------------

    def decode(self, body: bytes | Examined, account: str, services: Services) -> SpeechRequest:
        return decode_speech_request(body)

    def wants_stream(self, request: SpeechRequest) -> bool:
        return request.stream_format == "sse"

    def is_relayed(self, call: Call) -> bool:
        return True

    def quote(
        self, request: SpeechRequest, model: Model, body_size: int, adapted: Sequence[Adapted[SpeechRequest]] = ()
    ) -> Quote:
        text = request.input
        tokens = tokens_of(text_units(text) + text_units(request.instructions or ""))
        return _quote(model, len(text), tokens, speech_seconds(text, speed=request.speed or 1.0))

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        characters = size.tokens * CHARACTERS_PER_TOKEN
        return _quote(model, characters, size.tokens, speech_seconds("x" * characters, speed=1.0))

    def check_candidate(self, request: SpeechRequest, candidate: Candidate) -> None:
        if request.format not in _provider(candidate).speech_formats:
            raise UnsupportedValue(
                f"This model does not support '{request.format}' as response format.", param="response_format"
            )
        without_events = "stream_format" in candidate.model.unsupported_params
        if request.stream_format == "sse" and (without_events or candidate.target.model in WITHOUT_EVENTS):
            raise UnsupportedValue("This model does not support 'sse' as stream format.", param="stream_format")

    # The call --------------------------------------------------------------------------------------------------------

    def attempt_stream(self, adapted: Adapted[SpeechRequest]) -> AsyncIterator[SpeechChunk]:
        return _provider(adapted.candidate).speak(adapted.request, adapted.candidate.target)

    def sink(self, call: Call, services: Services) -> EventSink:
        if call.stream:
            return super().sink(call, services)
        media_type = MEDIA_TYPES[call.request.format]
        return ByteSink(call.reply, services.keep_alive, media_type=media_type, claim=call.claim)

    def stream_encoder(self, call: Call, opened: Opened[SpeechChunk], services: Services) -> SpeechStreamEncoder:
        asked: str = call.request.format
        given = given_format(opened.first, asked)
        if given != asked:  # the upstream made it and charges for it
            call.reply.headers["x-gateway-response-format"] = given
            if isinstance(call.sink, ByteSink):
                call.sink.media_type = MEDIA_TYPES[given]
        return (SpeechEventEncoder if call.stream else SpeechStreamEncoder)(given)

    def hold_limit(self, call: Call, ledger: Ledger) -> AudioHoldExtension:
        return AudioHoldExtension(call, ledger, usage=partial(_unreported, call))

    def last_frames(self, call: Call, frames: bytes) -> bytes:
        return done_event(_public(call)) if call.stream else frames

    def stream_ended(self, call: Call) -> None:
        if call.encoder.meter.impossible and call.quote.price.per_second_out:
            gateway_log.warning("%s: impossible seconds from %s, estimated", call.request_id, call.provider)

    # The end ---------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        encoder: SpeechStreamEncoder | None = call.encoder
        return _used(call, encoder) if encoder is not None and encoder.content_started else None


def _quote(model: Model, characters: int, text_tokens: int, seconds: float) -> Quote:
    price = model.price
    longest = seconds * SLOW[0] + SLOW[1]
    prompt = Usage(characters=characters)
    worst = structs.replace(prompt, estimated=True)
    if _counts_tokens(price):
        prompt = structs.replace(prompt, in_text=text_tokens, estimated=True)
        audio = int(longest * MOST_TOKENS_PER_SECOND)
        worst = structs.replace(worst, in_text=with_safety(text_tokens), out_audio=audio)
    if price.per_second_out:
        worst = structs.replace(worst, audio_seconds_out=longest)
    return Quote.of(model, prompt=prompt, worst_case=worst)


def _provider(candidate: Candidate) -> Speech:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Speech", candidate.provider)


def _counts_tokens(price: Price) -> bool:
    return bool(price.input or price.output or price.audio_output)


def _public(call: Call) -> SpeechUsage:
    """The usage in the last event: the upstream's count within its bounds, else an estimate."""
    encoder: SpeechStreamEncoder = call.encoder
    if encoder.usage is not None:
        used = _used(call, encoder)
        return SpeechUsage(used.in_text, used.out_audio) if call.fault else encoder.usage
    text = call.quote.prompt.in_text or tokens_of(text_units(call.request.input))
    return SpeechUsage(text, int(encoder.meter.seconds * TOKENS_PER_SECOND) + 1)


def _used(call: Call, encoder: SpeechStreamEncoder) -> Usage:
    """All characters of the input, the upstream's tokens, and the delivered seconds."""
    seconds, timed = encoder.meter.seconds, bool(call.quote.price.per_second_out)
    unreported = _unreported(call, seconds)
    if encoder.usage is None:
        guessed = unreported.estimated or (timed and not encoder.meter.exact)
        return structs.replace(unreported, estimated=guessed)
    reported = Usage(
        characters=call.quote.prompt.characters,
        in_text=encoder.usage.input_tokens,
        out_audio=encoder.usage.output_tokens,
        audio_seconds_out=seconds,
        estimated=timed and not encoder.meter.exact,
    )
    bounds = Bounds(call.body_size, limit=call.quote.worst_case.out_audio or None)
    return call.accept_count(bound_usage(reported, bounds, unreported if encoder.meter.exact else NOTHING))


def _unreported(call: Call, seconds: float) -> Usage:
    """The usage of `seconds` of audio without an upstream count."""
    tokens = int(seconds * TOKENS_PER_SECOND) + 1 if _counts_tokens(call.quote.price) and seconds else 0
    return structs.replace(call.quote.prompt, out_audio=tokens, audio_seconds_out=round(seconds, 6))

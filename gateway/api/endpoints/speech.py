"""`POST /v1/audio/speech`: text in, sound out as it is made, as bytes or as events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from msgspec import structs

from gateway.api.answering_handler import AnsweringHandler
from gateway.api.quote import Terms
from gateway.billing.price import Price
from gateway.billing.token_estimate import speech_seconds, with_safety
from gateway.billing.usage import Usage, text_units, tokens_of
from gateway.catalog import Model
from gateway.encoders.speech import SpeechEventEncoder, SpeechStreamEncoder, done_event
from gateway.errors import UnsupportedValue
from gateway.inference.call import Call
from gateway.inference.event_stream import ByteStream, EventStream
from gateway.inference.hold_extension import SoundHoldExtension
from gateway.plugins.provider import Speech
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.speech import MEDIA_TYPES, SpeechChunk, SpeechRequest, SpeechUsage, decode_speech_request

#: Tokens of a second of speech that nobody counted, as published prices per minute and per token imply; and those
#: that are held for one.
TOKENS_PER_SECOND = 21
MOST_TOKENS_PER_SECOND = 32
#: How much longer than usual a text may take to say, whatever the instructions: a factor, and seconds.
SLOW = 2, 5
#: Tokens beyond which a count is impossible: a frame around the text, and what the sound may have.
PROMPT_CEILING = 10_000
SOUND_CEILING = 1_000_000
#: Upstream models that know no events; the names are OpenAI's, and whoever serves these models keeps them.
WITHOUT_EVENTS = ("tts-1", "tts-1-hd")


class SpeechHandler(AnsweringHandler[SpeechRequest]):
    """Text to speech."""

    endpoint = "speech"
    capability = Speech
    prompt_param = "input"
    encoder: SpeechStreamEncoder | None = None
    request: SpeechRequest

    # Terms -----------------------------------------------------------------------------------------------------------

    def decode(self, body: bytes) -> SpeechRequest:
        self.request = decode_speech_request(body)
        return self.request

    def wants_stream(self, request: SpeechRequest) -> bool:
        return request.stream_format == "sse"

    def price(self, request: SpeechRequest, model: Model) -> Terms[SpeechRequest]:
        self.adapt(request, model)
        price = model.price
        seconds = speech_seconds(request.input, speed=request.speed or 1.0)
        longest = seconds * SLOW[0] + SLOW[1]
        prompt = Usage(characters=len(request.input))
        worst = structs.replace(prompt, estimated=True)
        if _counts_tokens(price):
            text = tokens_of(text_units(request.input) + text_units(request.instructions or ""))
            prompt = structs.replace(prompt, in_text=text, estimated=True)
            worst = structs.replace(worst, in_text=with_safety(text), out_audio=int(longest * MOST_TOKENS_PER_SECOND))
        if price.per_second_out:
            worst = structs.replace(worst, audio_seconds_out=longest)
        return Terms(request, model, prompt, worst, (len(request.input) * 4 + PROMPT_CEILING, SOUND_CEILING))

    def check_candidate(self, request: SpeechRequest, candidate: Candidate) -> None:
        if request.format not in _speech(candidate).speech_formats:
            raise UnsupportedValue(
                f"This model does not support '{request.format}' as response format.", param="response_format"
            )
        without_events = "stream_format" in candidate.model.unsupported_params
        if request.stream_format == "sse" and (without_events or candidate.target.model in WITHOUT_EVENTS):
            raise UnsupportedValue("This model does not support 'sse' as stream format.", param="stream_format")

    # The answer ------------------------------------------------------------------------------------------------------

    def make_stream(self) -> EventStream:
        if self.request.stream_format == "sse":
            return super().make_stream()
        media_type = MEDIA_TYPES[self.request.format]
        return ByteStream(self, self.gateway.pulse, media_type=media_type, claim=self.claim)

    async def serve(self, call: Call, request: SpeechRequest) -> None:
        def attempt(adapted: Adapted[SpeechRequest]) -> AsyncIterator[SpeechChunk]:
            return _speech(adapted.candidate).speak(adapted.request, adapted.candidate.target)

        opened = await self.open_stream(call, attempt)
        encoder = self.encoder = (SpeechEventEncoder if call.stream else SpeechStreamEncoder)(request.format)
        extension = SoundHoldExtension(call, self.gateway.ledger, usage=lambda seconds: _unreported(call, seconds))
        last = await self.relay(call, opened, encoder, extension=extension)
        self.end_stream(call, done_event(self._public(call, encoder)) if call.stream else last)

    def _public(self, call: Call, encoder: SpeechStreamEncoder) -> SpeechUsage:
        """The usage that the last event tells: as counted, else estimated."""
        if encoder.usage is not None:
            return encoder.usage
        text = call.prompt.in_text or tokens_of(text_units(self.request.input))
        return SpeechUsage(text, int(encoder.meter.seconds * TOKENS_PER_SECOND) + 1)

    # The bill --------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        encoder = self.encoder
        if encoder is not None and encoder.content_started:
            return _used(call, encoder)
        if self.client_gone and call.attempts:
            return call.prompt  # the upstream was already reading it
        return None


def _speech(candidate: Candidate) -> Speech:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Speech", candidate.provider)


def _counts_tokens(price: Price) -> bool:
    return bool(price.input or price.output or price.audio_output)


def _used(call: Call, encoder: SpeechStreamEncoder) -> Usage:
    """The characters, all of which the upstream had; tokens as it counted them; seconds as they were delivered."""
    seconds = encoder.meter.seconds
    if encoder.usage is None:
        unreported = _unreported(call, seconds)
        guessed = unreported.estimated or (bool(call.price.per_second_out) and not encoder.meter.exact)
        return structs.replace(unreported, estimated=guessed)
    return Usage(
        characters=call.prompt.characters,
        in_text=encoder.usage.input_tokens,
        out_audio=encoder.usage.output_tokens,
        audio_seconds_out=seconds,
        estimated=bool(call.price.per_second_out) and not encoder.meter.exact,
    )


def _unreported(call: Call, seconds: float) -> Usage:
    """What so many seconds come to where the upstream counts nothing."""
    tokens = int(seconds * TOKENS_PER_SECOND) + 1 if _counts_tokens(call.price) and seconds else 0
    return structs.replace(call.prompt, out_audio=tokens, audio_seconds_out=round(seconds, 6))

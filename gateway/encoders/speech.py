"""Encodes speech as plain bytes or as events with base64, and measures its duration.

Both encoders take `SpeechChunk`s.
"""

from __future__ import annotations

from base64 import b64encode

from gateway.billing.delivered import Delivered
from gateway.billing.usage import possible_usage
from gateway.encoders.audio_meter import AudioMeter
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.speech import MEDIA_TYPES, SpeechChunk, SpeechUsage
from gateway.sse import encode_data
from gateway.uploads.audio_format import sound_format


def given_format(first: object, asked: str) -> str:
    """The format of audio that begins with `first`: the requested one, unless its bytes tell another one."""
    if not isinstance(first, SpeechChunk):
        return asked  # the encoder refuses it
    head: object = first.audio
    found = sound_format(head[:64], asked=asked) or first.format if isinstance(head, bytes) else asked
    return found if found in MEDIA_TYPES else asked


class SpeechStreamEncoder:
    """Passes the audio on as plain bytes."""

    def __init__(self, format: str) -> None:
        self.meter = AudioMeter(format)
        self.usage: SpeechUsage | None = None  # the upstream's count, if it is possible
        self.size = 0  # bytes of audio
        self.delivered = Delivered()

    @property
    def content_started(self) -> bool:
        """Whether any audio was encoded."""
        return self.size > 0

    def feed(self, item: SpeechChunk) -> bytes:
        """The wire bytes of `item`."""
        if not isinstance(item, SpeechChunk):
            raise TypeError(f"a stream of audio yields SpeechChunk, not {type(item).__name__}")
        self.usage = possible_usage(item.usage, SpeechUsage) or self.usage
        given: object = item.audio
        if not isinstance(given, bytes | bytearray | memoryview):  # bytes(2**40) would be a terabyte of zeros
            raise TypeError(f"audio is bytes, not {type(given).__name__}")
        audio = bytes(given)
        if not audio:
            return b""
        self.size += len(audio)
        self.meter.feed(audio)
        self.delivered.audio_ms = int(self.meter.seconds * 1000)
        return self.frame(audio)

    def frame(self, audio: bytes) -> bytes:
        """The wire bytes of some audio."""
        return audio

    def close(self) -> bytes:
        """The end of the answer; UpstreamInvalidResponse if there was no audio."""
        if not self.size:
            raise UpstreamInvalidResponse(detail="there was no audio")
        return b""


class SpeechEventEncoder(SpeechStreamEncoder):
    """Encodes the audio as `speech.audio.delta` events; the endpoint makes the last event, which has the usage."""

    def frame(self, audio: bytes) -> bytes:
        """One event; base64 and the names need no JSON escapes."""
        return encode_data(b'{"type":"speech.audio.delta","audio":"%b"}' % b64encode(audio))


def done_event(usage: SpeechUsage) -> bytes:
    """The last event, with the usage."""
    return encode_data(
        b'{"type":"speech.audio.done","usage":{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d}}'
        % (usage.input_tokens, usage.output_tokens, usage.input_tokens + usage.output_tokens)
    )

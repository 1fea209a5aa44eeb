"""A spoken answer as the wire shows it: bare bytes, or events with base64 in them; and how long it plays.

Both encoders take `SpeechChunk`s and measure them on the way.
"""

from __future__ import annotations

from base64 import b64encode

from gateway.billing.delivered import Delivered
from gateway.billing.usage import possible_speech_usage
from gateway.encoders.sound_meter import SoundMeter
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.speech import SpeechChunk, SpeechUsage
from gateway.sse import encode_data


class SpeechStreamEncoder:
    """The sound itself, as it comes."""

    def __init__(self, format: str) -> None:
        self.meter = SoundMeter(format)
        self.usage: SpeechUsage | None = None  # the upstream's count, if it is one
        self.size = 0  # bytes of sound
        self.delivered = Delivered()

    @property
    def content_started(self) -> bool:
        """Whether there was any sound."""
        return self.size > 0

    def feed(self, item: SpeechChunk) -> bytes:
        """The bytes that `item` makes on the wire."""
        if not isinstance(item, SpeechChunk):
            raise TypeError(f"a stream of sound yields SpeechChunk, not {type(item).__name__}")
        self.usage = possible_speech_usage(item.usage) or self.usage
        given: object = item.audio
        if not isinstance(given, bytes | bytearray | memoryview):  # bytes(2**40) would be a terabyte of zeros
            raise TypeError(f"sound is bytes, not {type(given).__name__}")
        sound = bytes(given)
        if not sound:
            return b""
        self.size += len(sound)
        self.meter.feed(sound)
        self.delivered.audio_ms = int(self.meter.seconds * 1000)
        return self.frame(sound)

    def frame(self, sound: bytes) -> bytes:
        """Some sound on the wire."""
        return sound

    def close(self) -> bytes:
        """What ends the answer; silence is no answer."""
        if not self.size:
            raise UpstreamInvalidResponse(detail="there was no sound")
        return b""


class SpeechEventEncoder(SpeechStreamEncoder):
    """The sound in `speech.audio.delta` events; the last event, which tells the usage, is the endpoint's."""

    def frame(self, sound: bytes) -> bytes:
        """One event; base64 and the names need no escapes."""
        return encode_data(b'{"type":"speech.audio.delta","audio":"%b"}' % b64encode(sound))


def done_event(usage: SpeechUsage) -> bytes:
    """The event that ends a sound."""
    return encode_data(
        b'{"type":"speech.audio.done","usage":{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d}}'
        % (usage.input_tokens, usage.output_tokens, usage.input_tokens + usage.output_tokens)
    )

"""Speech: which voice, in which format, and the body that asks for it (docs/providers/elevenlabs.md).

Sharp edge: WAV cannot be streamed there, so it comes from the other path and only once it is whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from gateway import SpeechRequest
from gateway.errors import InvalidValue, OutOfRange

#: What each format is called there; AAC and FLAC it does not make.
FORMATS: Mapping[str, str] = {"mp3": "mp3_44100_128", "opus": "opus_48000_128", "wav": "wav_24000", "pcm": "pcm_24000"}
WHOLE = frozenset({"wav"})
SLOWEST, FASTEST = 0.7, 1.2

#: Fields of its own that callers may send.
OWN_FIELDS = frozenset(
    {"language_code", "seed", "voice_settings", "previous_text", "next_text", "apply_text_normalization"}
)

_VOICE_ID = re.compile(r"[A-Za-z0-9]{16,40}")
_settings = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()


def voice_id(request: SpeechRequest, voices: Mapping[str, str], *, ids: bool) -> str:
    """The id of the voice that was asked for; InvalidValue for one that there is not."""
    name = request.voice_name
    if name in voices:
        return voices[name]
    if ids and _VOICE_ID.fullmatch(name):
        return name
    known = ", ".join(sorted(voices)) or "none"
    raise InvalidValue(f"This model has no such voice. Its voices are: {known}.", param="voice")


def path(request: SpeechRequest, voice: str) -> str:
    """Where the audio is, with the format in which it should come."""
    stream = "" if request.format in WHOLE else "/stream"
    return f"/v1/text-to-speech/{voice}{stream}?output_format={FORMATS[request.format]}"


def speech_body(request: SpeechRequest, model: str) -> bytes:
    """The JSON to send."""
    fields: dict[str, Any] = {name: request.fields[name] for name in request.fields if name in OWN_FIELDS}
    fields |= {"text": request.input, "model_id": model}
    if request.speed is not None:
        fields["voice_settings"] = {**_voice_settings(request), "speed": _checked_speed(request.speed)}
    return _encoder.encode(fields)


def _voice_settings(request: SpeechRequest) -> dict[str, Raw]:
    try:
        return _settings.decode(request.fields.get("voice_settings", b"{}"))
    except msgspec.MsgspecError:
        raise InvalidValue("Invalid 'voice_settings': expected an object.", param="voice_settings") from None


def _checked_speed(speed: float) -> float:
    if SLOWEST <= speed <= FASTEST:
        return speed
    side = "below_min" if speed < SLOWEST else "above_max"
    raise OutOfRange(
        f"Invalid 'speed': this model speaks at {SLOWEST} to {FASTEST} times the usual speed.",
        code=f"decimal_{side}_value",
        param="speed",
    )

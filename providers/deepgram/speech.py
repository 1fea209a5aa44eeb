"""Speech: which model, which is a voice, and how its audio is encoded (docs/providers/deepgram.md).

Sharp edge: Deepgram says itself which models take a speed, and within which bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway import SpeechRequest
from gateway.errors import InvalidValue

#: Encoding, container and rate of each format; what a format fixes is not said.
FORMATS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "mp3": (("encoding", "mp3"),),
    "opus": (("encoding", "opus"), ("container", "ogg")),
    "aac": (("encoding", "aac"),),
    "flac": (("encoding", "flac"),),
    "wav": (("encoding", "linear16"), ("container", "wav"), ("sample_rate", "24000")),
    "pcm": (("encoding", "linear16"), ("container", "none"), ("sample_rate", "24000")),
}


def model(request: SpeechRequest, configured: str, voices: Mapping[str, str]) -> str:
    """The model that speaks in the voice that was asked for; InvalidValue for a voice that there is not."""
    if not voices:
        return configured
    found = voices.get(request.voice_name)
    if found is None:
        raise InvalidValue(f"This model has no such voice. Its voices are: {', '.join(sorted(voices))}.", param="voice")
    return found


def query(request: SpeechRequest, model: str) -> list[tuple[str, str]]:
    """What the address says."""
    speed = [] if request.speed in (None, 1.0) else [("speed", str(request.speed))]
    return [("model", model), *FORMATS[request.format], *speed]


def body(request: SpeechRequest) -> bytes:
    """The JSON to send."""
    return msgspec.json.encode({"text": request.input})

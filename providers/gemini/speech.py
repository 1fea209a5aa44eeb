"""Speech: a stream of PCM, raw or behind the header of a WAV (docs/providers/gemini.md).

Sharp edge: an instruction is part of the text that Gemini is asked to speak, in the form its documentation shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gateway import SpeechChunk, SpeechRequest
from gateway.errors import ContentFiltered, UnsupportedValue, UpstreamInvalidResponse, UpstreamTruncated

from .audio import RATE, samples_of, wav_header
from .finish import FILTERED, VAGUE
from .usage import speech_usage
from .voices import speech_config
from .wire import Blob, WireAnswer

FORMATS = frozenset({"pcm", "wav"})

_encoder = msgspec.json.Encoder()


def speech_body(request: SpeechRequest, *, voices: Mapping[str, str]) -> bytes:
    """The JSON to send; raises BadRequest errors for a format or voice that Gemini has not."""
    if request.format not in FORMATS:
        raise UnsupportedValue("This model makes 'pcm' and 'wav' only.", param="response_format")
    text = request.input
    if request.instructions and (style := request.instructions.strip().rstrip(".:")):
        text = f"{style}: {text}"
    return _encoder.encode(
        {
            "contents": [{"role": "user", "parts": [{"text": text}]}],
            "generationConfig": {
                "responseModalities": ["AUDIO"],
                "speechConfig": speech_config(request.voice_name, voices, "voice"),
            },
        }
    )


class SpeechReader:
    """Reads the frames of one spoken answer."""

    def __init__(self, request: SpeechRequest) -> None:
        self._wav = request.format == "wav"
        self._spoke = False
        self._ended = False

    def read(self, answer: WireAnswer) -> Iterator[SpeechChunk]:
        """The audio in one frame, usage with or after the end."""
        blobs = [part.inline_data for candidate in answer.candidates or () for part in candidate.parts]
        audio = b"".join(self._audio(blob) for blob in blobs if blob is not None)
        if audio:
            yield SpeechChunk(audio)
        reason = next((one.finish_reason for one in answer.candidates or () if one.finish_reason), answer.block_reason)
        if reason is not None and not self._ended:
            self._end(reason)
        if self._ended and (usage := speech_usage(answer.usage_metadata)) is not None:
            yield SpeechChunk(usage=usage)

    def _audio(self, blob: Blob) -> bytes:
        """The bytes of a piece; the first one is a header where samples need one: in a WAV, and at another rate."""
        samples, rate = samples_of(blob)
        if self._spoke or not samples:
            return samples
        self._spoke = True
        return wav_header(rate=rate) + samples if rate and (self._wav or rate != RATE) else samples

    def close(self) -> None:
        """The body has ended; raises unless the audio has."""
        if not self._ended:
            raise UpstreamTruncated()

    def _end(self, reason: str) -> None:
        if reason == "STOP" and self._spoke:
            self._ended = True
        elif self._spoke:  # whatever stopped it, the audio is not whole
            raise UpstreamTruncated(detail=f"finish reason {reason!r}")
        elif reason in FILTERED | VAGUE:
            raise ContentFiltered(param="input", detail=f"finish reason {reason!r}")
        else:
            raise UpstreamInvalidResponse(detail=f"no audio, finish reason {reason!r}")

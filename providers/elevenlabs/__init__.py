"""ElevenLabs: speech in the voices of an account, and transcription.

::

    [providers.elevenlabs]
    plugin = "elevenlabs"
    api_key = "env:ELEVENLABS_API_KEY"
    voice_map = { alloy = "21m00Tcm4TlvDq8ikWAM", onyx = "pNInz6obpgDQGcFmaJgB" }

A voice is an id in an account, so callers' names mean nothing until `voice_map` says which voice they are. Neither
endpoint counts tokens: speech is charged by the character, transcription by the second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import ClassVar

from msgspec import field

from gateway import (
    Provider,
    Secret,
    Speech,
    SpeechChunk,
    SpeechRequest,
    Target,
    Transcript,
    Transcription,
    TranscriptionRequest,
    hookimpl,
)

from .._shared.audio_body import audio_of
from .._shared.http_provider import HttpOptions, HttpProvider
from . import speech, transcription


class ElevenLabsProvider(HttpProvider, Speech, Transcription):
    """One account of ElevenLabs."""

    name = "elevenlabs"
    speech_fields: ClassVar[frozenset[str] | None] = frozenset({"speed"}) | speech.OWN_FIELDS
    speech_formats: ClassVar[frozenset[str]] = frozenset(speech.FORMATS)
    transcription_fields: ClassVar[frozenset[str] | None] = (
        frozenset({"language", "temperature", "timestamp_granularities"}) | transcription.OWN_FIELDS
    )
    transcript_formats: ClassVar[frozenset[str]] = transcription.FORMATS
    common_headers: ClassVar[Mapping[str, str]] = {}  # each path has its own

    class Options(HttpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        api_key: Secret
        base_url: str = "https://api.elevenlabs.io"
        voice_map: dict[str, str] = field(default_factory=dict)  # ids of voices by the names callers use
        voice_ids: bool = False  # callers may also name a voice by its id

    options: Options

    def credentials(self) -> dict[str, str]:
        return {"xi-api-key": self.reveal(self.options.api_key)}

    async def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """The audio as it is made."""
        voice = speech.voice_id(request, self.options.voice_map, ids=self.options.voice_ids)
        url = f"{self.base_url}{speech.path(request, voice)}"
        body = speech.speech_body(request, target.model)
        headers = {"Content-Type": "application/json", "Accept": "*/*", **self.headers}
        async with await self.post_url(url, body, target, headers=headers) as answer:
            async for chunk in audio_of(answer, self.hidden):
                yield chunk

    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """One document."""
        url, form = f"{self.base_url}/v1/speech-to-text", transcription.form(request, target.model)
        async with await self.post_url(
            url, form, target, headers={"Accept": "application/json", **self.headers}
        ) as answer:
            return transcription.read_transcript(
                await answer.read(), speakers=request.response_format == "diarized_json"
            )


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `elevenlabs` plugin."""
    register(ElevenLabsProvider)

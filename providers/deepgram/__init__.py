"""Deepgram: speech in the voices of its Aura models, and transcription.

::

    [providers.deepgram]
    plugin = "deepgram"
    api_key = "env:DEEPGRAM_API_KEY"

    [models."house-voice"]
    provider = "deepgram"
    model = "aura-2-thalia-en"
    endpoints = ["speech"]

A speaking model is a voice: `aura-2-thalia-en` is what Thalia says in English. So a caller's `voice` counts only where
`voice_map` says which model it means. Speech is charged by the character, transcription by the second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import ClassVar
from urllib.parse import urlencode

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


class DeepgramProvider(HttpProvider, Speech, Transcription):
    """One project of Deepgram."""

    name = "deepgram"
    speech_fields: ClassVar[frozenset[str] | None] = frozenset({"speed"})
    speech_formats: ClassVar[frozenset[str]] = frozenset(speech.FORMATS)
    transcription_fields: ClassVar[frozenset[str] | None] = (
        frozenset({"language", "keywords", "timestamp_granularities"}) | transcription.OWN_FIELDS
    )
    transcript_formats: ClassVar[frozenset[str]] = transcription.FORMATS
    common_headers: ClassVar[Mapping[str, str]] = {}  # each path has its own

    class Options(HttpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        api_key: Secret
        base_url: str = "https://api.deepgram.com"
        # models by the names of voices callers use; empty: the model's own voice
        voice_map: dict[str, str] = field(default_factory=dict)
        detect_language: bool = True  # when a caller names none; otherwise Deepgram takes it for English

    options: Options

    def credentials(self) -> dict[str, str]:
        return {"Authorization": f"Token {self.reveal(self.options.api_key)}"}

    async def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """The audio as it is made."""
        query = speech.query(request, speech.model(request, target.model, self.options.voice_map))
        headers = {"Content-Type": "application/json", "Accept": "*/*", **self.headers}
        async with await self.post_url(
            self._url("/v1/speak", query), speech.body(request), target, headers=headers
        ) as answer:
            async for chunk in audio_of(answer, self.hidden):
                yield chunk

    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """One document; the audio is the request's body, and streams through."""
        query = transcription.query(request, target.model, detect_language=self.options.detect_language)
        file = request.file
        headers = {
            "Content-Type": transcription.media_type(request),
            "Content-Length": str(file.size),
            "Accept": "application/json",
            **self.headers,
        }
        async with await self.post_url(
            self._url("/v1/listen", query), file.chunks(), target, headers=headers
        ) as answer:
            return transcription.read_transcript(
                await answer.read(), speakers=request.response_format == "diarized_json"
            )

    def _url(self, path: str, query: list[tuple[str, str]]) -> str:
        return f"{self.base_url}{path}?{urlencode(query)}"


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `deepgram` plugin."""
    register(DeepgramProvider)

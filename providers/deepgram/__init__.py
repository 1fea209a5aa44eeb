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

from collections.abc import AsyncIterator, Callable
from typing import ClassVar
from urllib.parse import urlencode

from msgspec import Struct

from gateway import (
    Answer,
    Provider,
    Secret,
    Speech,
    SpeechChunk,
    SpeechRequest,
    Target,
    Transcript,
    Transcription,
    TranscriptionRequest,
    Upstream,
    hookimpl,
)
from gateway.plugins.upstream_errors import raise_for_status

from .._shared.base_url import checked_base_url
from .._shared.sound_body import sound_of
from . import speech, transcription


class DeepgramProvider(Provider, Speech, Transcription):
    """One project of Deepgram."""

    name = "deepgram"
    speech_fields: ClassVar[frozenset[str] | None] = frozenset({"speed"})
    speech_formats: ClassVar[frozenset[str]] = frozenset(speech.FORMATS)
    transcription_fields: ClassVar[frozenset[str] | None] = (
        frozenset({"language", "keywords", "timestamp_granularities"}) | transcription.OWN_FIELDS
    )
    transcript_formats: ClassVar[frozenset[str]] = transcription.FORMATS

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        api_key: Secret
        base_url: str = "https://api.deepgram.com"
        headers: dict[str, str] = {}  # sent with every request
        voice_map: dict[str, str] = {}  # models by the names of voices callers use; empty: the model's own voice
        detect_language: bool = True  # when a caller names none; otherwise Deepgram takes it for English

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._base_url, place = checked_base_url(options.base_url)
        self._headers: dict[str, str] = {}
        self._hidden: tuple[str, ...] = (place,)  # never to appear in an error

    async def start(self) -> None:
        """Read the key, once: it may come from a file."""
        key = self.options.api_key.reveal()
        self._headers = {"Authorization": f"Token {key}", **self.options.headers}
        self._hidden = (*self._hidden, key)

    async def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """The sound as it is made."""
        query = speech.query(request, speech.model(request, target.model, self.options.voice_map))
        headers = {"Content-Type": "application/json", "Accept": "*/*"}
        async with await self._post("/v1/speak", query, speech.body(request), target, headers=headers) as answer:
            async for chunk in sound_of(answer, self._hidden):
                yield chunk

    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """One document; the sound is the request's body, and streams through."""
        query = transcription.query(request, target.model, detect_language=self.options.detect_language)
        file = request.file
        headers = {
            "Content-Type": transcription.media_type(request),
            "Content-Length": str(file.size),
            "Accept": "application/json",
        }
        async with await self._post("/v1/listen", query, file.chunks(), target, headers=headers) as answer:
            return transcription.read_transcript(
                await answer.read(), speakers=request.response_format == "diarized_json"
            )

    async def _post(
        self,
        path: str,
        query: list[tuple[str, str]],
        body: bytes | AsyncIterator[bytes],
        target: Target,
        *,
        headers: dict[str, str],
    ) -> Answer:
        """The answer, once its headers are there; the typed error for one that is no success."""
        answer = await self.upstream.send(
            "POST",
            f"{self._base_url}{path}?{urlencode(query)}",
            headers={**headers, **self._headers},
            body=body,
            timeouts=target.timeouts,
        )
        try:
            await raise_for_status(answer, self._hidden)
        except BaseException:
            answer.close()
            raise
        return answer


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `deepgram` plugin."""
    register(DeepgramProvider)

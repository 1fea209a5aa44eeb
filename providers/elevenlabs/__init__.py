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

from collections.abc import AsyncIterator, Callable
from typing import ClassVar

from msgspec import Struct

from gateway import (
    Answer,
    Multipart,
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


class ElevenLabsProvider(Provider, Speech, Transcription):
    """One account of ElevenLabs."""

    name = "elevenlabs"
    speech_fields: ClassVar[frozenset[str] | None] = frozenset({"speed"}) | speech.OWN_FIELDS
    speech_formats: ClassVar[frozenset[str]] = frozenset(speech.FORMATS)
    transcription_fields: ClassVar[frozenset[str] | None] = (
        frozenset({"language", "temperature", "timestamp_granularities"}) | transcription.OWN_FIELDS
    )
    transcript_formats: ClassVar[frozenset[str]] = transcription.FORMATS

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        api_key: Secret
        base_url: str = "https://api.elevenlabs.io"
        headers: dict[str, str] = {}  # sent with every request
        voice_map: dict[str, str] = {}  # ids of voices by the names callers use
        voice_ids: bool = False  # callers may also name a voice by its id

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._base_url, place = checked_base_url(options.base_url)
        self._headers: dict[str, str] = {}
        self._hidden: tuple[str, ...] = (place,)  # never to appear in an error

    async def start(self) -> None:
        """Read the key, once: it may come from a file."""
        key = self.options.api_key.reveal()
        self._headers = {"xi-api-key": key, **self.options.headers}
        self._hidden = (*self._hidden, key)

    async def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """The sound as it is made."""
        voice = speech.voice_id(request, self.options.voice_map, ids=self.options.voice_ids)
        path = speech.path(request, voice)
        async with await self._post(path, speech.speech_body(request, target.model), target, accept="*/*") as answer:
            async for chunk in sound_of(answer, self._hidden):
                yield chunk

    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """One document."""
        async with await self._post("/v1/speech-to-text", transcription.form(request, target.model), target) as answer:
            return transcription.read_transcript(
                await answer.read(), speakers=request.response_format == "diarized_json"
            )

    async def _post(
        self, path: str, body: bytes | Multipart, target: Target, *, accept: str = "application/json"
    ) -> Answer:
        """The answer, once its headers are there; the typed error for one that is no success."""
        headers = {"Content-Type": "application/json", "Accept": accept, **self._headers}
        answer = await self.upstream.send(
            "POST", f"{self._base_url}{path}", headers=headers, body=body, timeouts=target.timeouts
        )
        try:
            await raise_for_status(answer, self._hidden)
        except BaseException:
            answer.close()
            raise
        return answer


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `elevenlabs` plugin."""
    register(ElevenLabsProvider)

"""A provider without a network: deterministic answers, and every way of failing that a script can ask for.

It serves `gateway serve --demo`, tests and benchmarks. Unscripted models repeat the last message, honour `max_tokens`,
`stop`, `n`, a required tool and a JSON schema, and count words as tokens. A script is chosen by the upstream's model::

    [providers.demo.models.broken]
    text = "one two three"
    fail_after = 2                 # chunks
    error = "UpstreamOverloaded"

Embeddings are unit vectors drawn from a hash of the text, rankings go by common words, flags go by words, images are
small PNGs of one colour, speech is a tone, transcripts are words about the file, realtime sessions repeat what they are
told; a script's waits and failures hold for
them too. Sharp edge: `usage = "text"` and its like yield values that no type checker would let pass; that is their
purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import ClassVar, TypeVar

from msgspec import Struct

from gateway import (
    AcceptedFields,
    Chat,
    ChatChunk,
    ChatRequest,
    EmbeddingAnswer,
    EmbeddingRequest,
    Embeddings,
    ImageAnswer,
    ImageEdit,
    ImageEditRequest,
    ImageEvent,
    ImageRequest,
    Images,
    Moderation,
    ModerationAnswer,
    ModerationRequest,
    Provider,
    Realtime,
    RealtimeRequest,
    RealtimeSession,
    Rerank,
    RerankAnswer,
    RerankRequest,
    Speech,
    SpeechChunk,
    SpeechRequest,
    Target,
    Transcript,
    TranscriptEvent,
    Transcription,
    TranscriptionRequest,
    Upstream,
    hookimpl,
)
from gateway.schemas.completions.native import CompletionsNative
from gateway.schemas.native_request import COMPLETIONS

from .chat import ChatPlan
from .completions import ACCEPTED, CompletionPlan
from .embeddings import embedding_answer
from .images import edited, image_answer, image_events
from .moderation import moderation_answer
from .realtime import FakeSession
from .rerank import rerank_answer
from .script import Script
from .speech import FORMATS as SPEECH_FORMATS
from .speech import speech_chunks
from .transcription import FORMATS as TRANSCRIPT_FORMATS
from .transcription import listened, transcript_events

T = TypeVar("T")


class FakeProvider(Provider, Chat, Embeddings, ImageEdit, Images, Moderation, Realtime, Rerank, Speech, Transcription):
    """Makes answers up."""

    name = "fake"
    # It takes every field, so that clients can be tried with any of them.
    chat_fields: ClassVar[frozenset[str] | None] = None
    embedding_fields: ClassVar[frozenset[str] | None] = None
    image_fields: ClassVar[frozenset[str] | None] = None
    image_edit_fields: ClassVar[frozenset[str] | None] = None
    moderation_fields: ClassVar[frozenset[str] | None] = None
    rerank_fields: ClassVar[frozenset[str] | None] = None
    speech_fields: ClassVar[frozenset[str] | None] = None
    transcription_fields: ClassVar[frozenset[str] | None] = None
    takes_tokens = True
    gives_urls = True
    speech_formats = SPEECH_FORMATS
    transcript_formats = TRANSCRIPT_FORMATS

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """Scripts by the upstream's model name; other names get the default behaviour."""

        models: dict[str, Script] = {}

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._scripts = options.models
        self._default = Script()

    async def _script(self, target: Target) -> Script:
        """The script of a call, once its first silence is over."""
        script = self._scripts.get(target.model, self._default)
        await script.wait()
        return script

    def accepted_fields(self, dialect: str, target: Target) -> AcceptedFields | None:
        return ACCEPTED if dialect == COMPLETIONS else None

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The scripted chunks of every choice, one choice after the other, then usage; of a completion, too."""
        script = await self._script(target)
        asked = request.native
        plan: ChatPlan | CompletionPlan = ChatPlan(request, script)
        if isinstance(asked, CompletionsNative):
            plan = CompletionPlan(request, asked, script)
        early = plan.early_usage() if script.early_usage else None
        async for chunk in _paced(plan.chunks(), script):
            if early is not None:
                chunk.usage, early = early, None
            yield chunk
        usage = plan.usage()
        if usage is not None:
            yield ChatChunk.with_usage(usage)

    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        """A unit vector per input, the same for the same text."""
        script = await self._begin(target)
        return embedding_answer(request, script)

    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        """PNGs of one colour, the same for the same prompt."""
        script = await self._begin(target)
        return image_answer(request, script)

    async def stream_images(self, request: ImageRequest, target: Target) -> AsyncIterator[ImageEvent]:
        """Previews as asked for, then the image, for one image after the other."""
        script = await self._script(target)
        async for event in _paced(image_events(request, script), script):
            yield event

    async def edit_images(self, request: ImageEditRequest, target: Target) -> ImageAnswer:
        """PNGs of one colour, the same for the same prompt and images."""
        script = await self._begin(target)
        return image_answer(await edited(request), script)

    async def stream_edits(self, request: ImageEditRequest, target: Target) -> AsyncIterator[ImageEvent]:
        """Previews as asked for, then the image, for one image after the other."""
        script = await self._script(target)
        async for event in _paced(image_events(await edited(request), script), script):
            yield event

    async def moderate(self, request: ModerationRequest, target: Target) -> ModerationAnswer:
        """Flags by words."""
        await self._begin(target)
        return moderation_answer(request)

    async def open_realtime(self, request: RealtimeRequest, target: Target) -> RealtimeSession:
        """A conversation that repeats what it is told."""
        script = await self._script(target)
        if script.fail_after == 0:
            raise script.failure()
        return FakeSession(target.model, script)

    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        """The documents by the words of the query that they have."""
        script = await self._begin(target)
        return rerank_answer(request, script)

    async def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """A tone as long as the text would take to say."""
        script = await self._script(target)
        async for chunk in _paced(speech_chunks(request, script), script):
            yield chunk

    def can_translate(self, target: Target) -> bool:
        return True

    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """Words about the audio's length and hash."""
        return await listened(request, await self._begin(target))

    async def stream_transcript(self, request: TranscriptionRequest, target: Target) -> AsyncIterator[TranscriptEvent]:
        """The same word by word."""
        script = await self._script(target)
        transcript = await listened(request, script)
        async for event in _paced(transcript_events(transcript, request, script), script):
            yield event

    async def _begin(self, target: Target) -> Script:
        """The script of a call that is answered whole, once its silence is over; fails if it says so."""
        script = await self._script(target)
        if script.silent_after is not None:
            await asyncio.Event().wait()
        if script.fail_after is not None:
            raise script.failure()
        return script


async def _paced(items: Iterator[T], script: Script) -> AsyncIterator[T]:
    """The items at the script's pace, up to where it fails or falls silent."""
    sent = 0
    for item in items:
        if sent == script.fail_after:
            raise script.failure()
        if sent == script.silent_after:
            await asyncio.Event().wait()
        if sent and script.interval:
            await asyncio.sleep(script.interval)
        yield item
        sent += 1
        if script.endless and not script.interval and sent % 64 == 0:
            await asyncio.sleep(0)  # others must live beside a stream that never waits
    if sent == script.fail_after:
        raise script.failure()


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `fake` plugin."""
    register(FakeProvider)

"""The base classes of providers: a provider translates one vendor's API, with one base class per capability.

A capability is a class that you implement: `class Mine(Provider, Chat)`. The smallest provider has one
method::

    class EchoProvider(Provider, Chat):
        name = "echo"

        async def stream_chat(self, request, target):
            yield ChatChunk.text(request.messages[-1].content)
            yield ChatChunk.finish("stop")

A provider raises the `Upstream*` errors; the class of an error decides whether another target may be tried. It never
retries, never uses the store and never counts money. Sharp edge: an instance serves many calls at once, on one
event loop.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from gateway.http_client.timeouts import Timeouts
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.plugins.realtime_session import RealtimeSession
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChatCompletion
from gateway.schemas.embeddings import EmbeddingAnswer, EmbeddingRequest
from gateway.schemas.images import ImageAnswer, ImageEditRequest, ImageEvent, ImageRequest
from gateway.schemas.native_request import AcceptedFields
from gateway.schemas.realtime.request import RealtimeRequest
from gateway.schemas.scoring.moderation import ModerationAnswer, ModerationRequest
from gateway.schemas.scoring.rerank import RerankAnswer, RerankRequest
from gateway.schemas.speech import SpeechChunk, SpeechRequest
from gateway.schemas.transcription import Transcript, TranscriptEvent, TranscriptionRequest

if TYPE_CHECKING:
    from gateway.http_client.upstream import Upstream


class Target(Struct, frozen=True):
    """The destination of an attempt: a provider and the upstream's name of the model."""

    provider: str  # the name under [providers.…] in the configuration
    model: str  # the upstream's name
    public_model: str = ""  # the name callers use
    timeouts: Timeouts = Timeouts()
    max_tokens_field: str = ""  # rename the output limit to "max_tokens" or "max_completion_tokens"; "" leaves it


class Provider:
    """Base of every provider: a name, typed options, and the HTTP client for the upstream."""

    #: The value of `plugin` in the configuration.
    name: ClassVar[str] = ""
    #: Fields that the gateway does not know and this provider forwards, on every endpoint; "*" for any. An instance may
    #: have its own.
    forwarded_fields: frozenset[str] = frozenset()
    #: The texts of the secrets in `options`, which no error may show; the gateway sets them.
    secret_texts: tuple[str, ...] = ()

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys this provider reads under [providers.NAME], besides `plugin`."""

    def __init__(self, options: Any, upstream: Upstream) -> None:
        self.options = options  # an instance of `Options`, decoded from the configuration
        self.upstream = upstream  # sends requests, through the provider's `proxy` if it has one

    async def start(self) -> None:
        """Open resources; called once before the port opens. An exception takes the provider out of service."""

    async def close(self) -> None:
        """Release the resources; called after the last call has ended."""


class Chat(abc.ABC):
    """The provider answers chat completions."""

    #: Fields of `ChatRequest` that this provider supports, and unknown ones ("*": any); None means all known ones. By
    #: default none: a request with another semantic field is refused.
    chat_fields: ClassVar[frozenset[str] | None] = frozenset()
    #: Whether the gateway names the session of a call in `prompt_cache_key`, if the caller has not sent this field.
    takes_cache_key: bool = False
    #: The field in which the gateway sends its own output limit.
    limit_field: str = "max_tokens"

    def output_limit(self, request: ChatRequest, target: Target) -> int | None:
        """The output limit that is sent for `request`, reasoning included; None if none is sent.

        Money is held for it. A provider never sends a higher one, so one whose API demands a limit overrides this.
        """
        return request.max_output

    def can_send_cache_key(self, key: str) -> bool:
        """Whether a caller's `prompt_cache_key` can be sent; otherwise it is left out, named to the caller."""
        return True

    def cache_marks(self, request: ChatRequest, target: Target) -> frozenset[str]:
        """Which of `request.cache_marks` reach the upstream, in its own form; the others are named to the caller."""
        return request.cache_marks

    def accepted_fields(self, dialect: str, target: Target) -> AcceptedFields | None:
        """What this upstream takes of a request in `dialect`; None for nothing.

        The dialects are "completions", "responses", "messages" and "gemini".
        With an answer, `request.native` has the fields to forward, and the chunks may be `NativeChunk`s.
        """
        return None

    def refused_sampling(self, target: Target) -> frozenset[str]:
        """Sampling fields, such as `temperature`, that this model refuses; they are left out, named to the caller."""
        return frozenset()

    def prefill(self, target: Target) -> str:
        """How this model is asked to go on with a begun answer, which is the last message, of the assistant.

        "assistant": by that alone; "prefix": with `prefix` in it; "continue_final_message": with this field beside the
        messages; "none": not at all.
        """
        return "unknown"

    @abc.abstractmethod
    def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """Yield the answer's chunks: text or tool fragments, a finish per choice, usage if it is known.

        A later usage replaces an earlier one. If the prompt is counted early, its usage comes with a chunk of content.

        A stream that ends without a finish counts as cut, and the caller gets an error.
        """

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """The whole answer; by default combined from the stream."""
        return await fold_chat(self.stream_chat(request, target))


class Embeddings(abc.ABC):
    """The provider creates embeddings of texts."""

    #: Optional fields of `EmbeddingRequest` that this provider supports; by default none, None means all known ones.
    embedding_fields: ClassVar[frozenset[str] | None] = frozenset()
    #: Whether inputs may be lists of token numbers; they are refused otherwise.
    takes_tokens: bool = False

    @abc.abstractmethod
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        """One vector per entry of `request.inputs`, in their order."""


class Images(abc.ABC):
    """The provider generates images."""

    #: Optional fields of `ImageRequest` that this provider supports; by default none, None means all known ones.
    image_fields: ClassVar[frozenset[str] | None] = frozenset()
    #: Whether it can answer with URLs of images; otherwise a request for URLs is refused.
    gives_urls: bool = False

    @abc.abstractmethod
    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        """`request.count` images."""

    async def stream_images(self, request: ImageRequest, target: Target) -> AsyncIterator[ImageEvent]:
        """Yield previews, then each finished image; by default only the finished ones."""
        for event in (await self.generate_images(request, target)).as_events():
            yield event


class ImageEdit(abc.ABC):
    """The provider edits images, or makes variations of one; models of the endpoint `images` serve them."""

    #: Optional fields of `ImageEditRequest` that this provider supports; by default none, None means all known ones.
    image_edit_fields: ClassVar[frozenset[str] | None] = frozenset()
    #: Whether it can answer with URLs of images; otherwise a request for URLs is refused.
    gives_urls: bool = False

    @abc.abstractmethod
    async def edit_images(self, request: ImageEditRequest, target: Target) -> ImageAnswer:
        """`request.count` images made of `request.image`: as the prompt says, or like it if `request.is_variation`."""

    async def stream_edits(self, request: ImageEditRequest, target: Target) -> AsyncIterator[ImageEvent]:
        """Yield previews, then each finished image; by default only the finished ones."""
        for event in (await self.edit_images(request, target)).as_events():
            yield event


class Moderation(abc.ABC):
    """The provider judges texts, or images, by categories of harm."""

    #: Optional fields of `ModerationRequest` that this provider supports; by default none, None means all known ones.
    moderation_fields: ClassVar[frozenset[str] | None] = frozenset()
    #: Whether an input may have images; they are refused otherwise.
    moderates_images: bool = True

    @abc.abstractmethod
    async def moderate(self, request: ModerationRequest, target: Target) -> ModerationAnswer:
        """One result per entry of `request.inputs`, in their order."""


class Realtime(abc.ABC):
    """The provider holds conversations of speech and text, in the events of OpenAI's Realtime API."""

    #: Optional fields of `RealtimeRequest` that this provider supports; it has none yet.
    realtime_fields: ClassVar[frozenset[str] | None] = frozenset()

    @abc.abstractmethod
    async def open_realtime(self, request: RealtimeRequest, target: Target) -> RealtimeSession:
        """An open session of the target's model; its first event is `session.created`."""


class Rerank(abc.ABC):
    """The provider sorts documents by their relevance to a query."""

    #: Optional fields of `RerankRequest` that this provider supports; by default none, None means all known ones.
    rerank_fields: ClassVar[frozenset[str] | None] = frozenset()

    @abc.abstractmethod
    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        """A score for each of `request.texts`, or for the best `top_n` of them, in any order."""


class Speech(abc.ABC):
    """The provider generates speech."""

    #: Optional fields of `SpeechRequest` that this provider supports; by default none, None means all known ones.
    speech_fields: ClassVar[frozenset[str] | None] = frozenset()
    #: Audio formats that it can generate.
    speech_formats: ClassVar[frozenset[str]] = frozenset({"mp3", "opus", "aac", "flac", "wav", "pcm"})

    @abc.abstractmethod
    def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """Yield the audio in `request.format` as it arrives. PCM is 24 kHz, 16-bit little-endian, mono, without header.

        An iterator that ends means that the audio is complete; raise UpstreamTruncated for a cut one.
        """


class Transcription(abc.ABC):
    """The provider transcribes audio."""

    #: Optional form fields of `TranscriptionRequest` that it supports; by default none, None means all known ones.
    transcription_fields: ClassVar[frozenset[str] | None] = frozenset()
    #: Response formats that it supports: "json" and "text" need only the text, the others times or speakers.
    transcript_formats: ClassVar[frozenset[str]] = frozenset({"json", "text", "srt", "vtt", "verbose_json"})

    def can_translate(self, target: Target) -> bool:
        """Whether this model writes in English what is said in another language, if `request.translates` asks it to."""
        return False

    @abc.abstractmethod
    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """The whole transcript, with segments and words where `response_format` and the granularities need them."""

    async def stream_transcript(self, request: TranscriptionRequest, target: Target) -> AsyncIterator[TranscriptEvent]:
        """Yield pieces of text, and the whole transcript last; by default all text at once."""
        transcript = await self.transcribe(request, target)
        yield TranscriptEvent(delta=transcript.text)
        yield TranscriptEvent(done=transcript)


#: Every capability class by the name it has in configuration, `gateway plugins` and the docs.
CAPABILITIES: dict[str, type] = {
    "chat": Chat,
    "embeddings": Embeddings,
    "images": Images,
    "moderation": Moderation,
    "realtime": Realtime,
    "rerank": Rerank,
    "speech": Speech,
    "transcription": Transcription,
    "image_edit": ImageEdit,  # no endpoint of its own
}


def capability_name(capability: type) -> str:
    """The name of a capability class; a class that is not among them has that of its class."""
    return next((name for name, found in CAPABILITIES.items() if found is capability), capability.__name__.lower())


def capabilities_of(provider: type[Provider]) -> list[str]:
    """Names of the capabilities a provider class implements."""
    return [name for name, capability in CAPABILITIES.items() if issubclass(provider, capability)]

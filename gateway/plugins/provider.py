"""What a provider plugin is: a class that speaks one vendor's dialect, with one base class per capability.

A capability is a class you implement, not a flag you set: `class Mine(Provider, Chat)`. The smallest provider has one
method::

    class EchoProvider(Provider, Chat):
        name = "echo"

        async def stream_chat(self, request, target):
            yield ChatChunk.text(request.messages[-1].content)
            yield ChatChunk.finish("stop")

Providers translate. They raise the `Upstream*` errors, whose class says whether another target may be tried; they
never retry, never touch the store and never count money. Sharp edge: an instance serves many calls at once, on one
event loop.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from gateway.http_client.timeouts import Timeouts
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChatCompletion
from gateway.schemas.embeddings import EmbeddingAnswer, EmbeddingRequest
from gateway.schemas.images import ImageAnswer, ImageEvent, ImageRequest
from gateway.schemas.speech import SpeechChunk, SpeechRequest
from gateway.schemas.transcription import Transcript, TranscriptEvent, TranscriptionRequest

if TYPE_CHECKING:
    from gateway.http_client.upstream import Upstream


class Target(Struct, frozen=True):
    """Where one attempt goes: a provider instance and the upstream's own name of the model."""

    provider: str  # the name under [providers.…] in the configuration
    model: str  # the upstream's name
    public_model: str = ""  # the name callers use
    timeouts: Timeouts = Timeouts()
    max_tokens_field: str = ""  # rename the output limit to "max_tokens" or "max_completion_tokens"; "" leaves it


class Provider:
    """Base of every provider: a name, typed options, and the way to the upstream."""

    name: ClassVar[str] = ""

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys this provider reads under [providers.NAME], besides `plugin`."""

    def __init__(self, options: Any, upstream: Upstream) -> None:
        self.options = options
        self.upstream = upstream

    async def start(self) -> None:
        """Open what the provider needs; called once before the port opens, and raising refuses to start."""

    async def close(self) -> None:
        """Release it; called after the last call has ended."""


class Chat(abc.ABC):
    """The provider answers chat completions."""

    #: Fields of `ChatRequest` that this dialect can honour, "*" for unknown ones; None means all.
    chat_fields: ClassVar[frozenset[str] | None] = None

    @abc.abstractmethod
    def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """Yield the answer's chunks: text or tool fragments, a finish per choice, usage last if it is known.

        Ending without a finish means the upstream was cut off; the caller is told so.
        """

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """The whole answer at once; folds the stream unless the dialect has a better way."""
        return await fold_chat(self.stream_chat(request, target))


class Embeddings(abc.ABC):
    """The provider turns texts into vectors."""

    #: Optional fields of `EmbeddingRequest` that this dialect can honour; None means all.
    embedding_fields: ClassVar[frozenset[str] | None] = None
    #: Whether inputs may be lists of token numbers; they are refused otherwise.
    takes_tokens: bool = False

    @abc.abstractmethod
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        """One vector per entry of `request.inputs`, in their order."""


class Images(abc.ABC):
    """The provider makes images."""

    #: Optional fields of `ImageRequest` that this dialect can honour; None means all.
    image_fields: ClassVar[frozenset[str] | None] = None
    #: Whether it can answer with URLs of images; a request for them is refused otherwise.
    gives_urls: bool = False

    @abc.abstractmethod
    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        """`request.count` images."""

    async def stream_images(self, request: ImageRequest, target: Target) -> AsyncIterator[ImageEvent]:
        """Previews, then each finished image; without a better way the finished ones only."""
        answer = await self.generate_images(request, target)
        for number, image in enumerate(answer.data):
            yield ImageEvent(
                image.b64_json or "",
                usage=answer.usage if number == len(answer.data) - 1 else None,
                size=answer.size,
                quality=answer.quality,
                background=answer.background,
                output_format=answer.output_format,
            )


class Speech(abc.ABC):
    """The provider speaks."""

    #: Optional fields of `SpeechRequest` that this dialect can honour; None means all.
    speech_fields: ClassVar[frozenset[str] | None] = None
    #: Formats of sound that it can make.
    speech_formats: ClassVar[frozenset[str]] = frozenset({"mp3", "opus", "aac", "flac", "wav", "pcm"})

    @abc.abstractmethod
    def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """Yield the sound in `request.format` as it comes. PCM is 24 kHz, 16-bit little-endian, mono, without header.

        An iterator that ends says that the sound is whole; a cut one raises UpstreamTruncated.
        """


class Transcription(abc.ABC):
    """The provider writes down what it hears."""

    #: Optional form fields of `TranscriptionRequest` that this dialect can honour; None means all.
    transcription_fields: ClassVar[frozenset[str] | None] = None
    #: Response formats it can fill: "json" and "text" need the text alone, the others times or speakers.
    transcript_formats: ClassVar[frozenset[str]] = frozenset({"json", "text", "srt", "vtt", "verbose_json"})

    @abc.abstractmethod
    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """The whole transcript, with segments and words where `response_format` and granularities want them."""

    async def stream_transcript(self, request: TranscriptionRequest, target: Target) -> AsyncIterator[TranscriptEvent]:
        """Text as it is heard, and the whole transcript last; without a better way all at once."""
        transcript = await self.transcribe(request, target)
        yield TranscriptEvent(delta=transcript.text)
        yield TranscriptEvent(done=transcript)


#: Every capability class by the name it has in configuration, `gateway plugins` and the docs.
CAPABILITIES: dict[str, type] = {
    "chat": Chat,
    "embeddings": Embeddings,
    "images": Images,
    "speech": Speech,
    "transcription": Transcription,
}


def capabilities_of(provider: type[Provider]) -> list[str]:
    """Names of the capabilities a provider class implements."""
    return [name for name, capability in CAPABILITIES.items() if issubclass(provider, capability)]

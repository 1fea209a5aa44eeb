"""Google's Gemini: the developer API, or Vertex AI in a project of one's own.

::

    [providers.gemini]
    plugin = "gemini"
    api_key = "env:GEMINI_API_KEY"

    [providers.vertex]                    # needs the extra: pip install 'model-gateway[vertex]'
    plugin = "gemini"
    project = "my-project"
    location = "europe-west4"
    service_account = "file:/run/secrets/service-account.json"  # without it, the environment's own

One vendor method, `generateContent`, serves chat, images, speech and transcription; each has a module that writes the
request and reads the answer, and nothing else. What tells models apart is data: `model_flags`.
Sharp edge: a stream has no end marker, so one that ends before its finish reason was cut.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import cache, partial
from typing import ClassVar, Literal

from msgspec import Struct

from gateway import (
    AcceptedFields,
    Answer,
    Chat,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    EmbeddingAnswer,
    EmbeddingRequest,
    Embeddings,
    ImageAnswer,
    ImageRequest,
    Images,
    ImageUsage,
    LanedStream,
    Provider,
    Secret,
    SecretHeaders,
    Speech,
    SpeechChunk,
    SpeechRequest,
    Target,
    TextLane,
    Transcript,
    TranscriptEvent,
    Transcription,
    TranscriptionRequest,
    Upstream,
    hookimpl,
    reveal_headers,
)
from gateway.errors import GatewayError, UpstreamTruncated

from .._shared.chat_parts import CHAT_FIELDS
from .._shared.google_credentials import FixedHeaders, VertexToken, vertex_token
from .._shared.google_errors import raise_for_status
from .._shared.http_provider import JSON_HEADERS
from . import embedding, images, speech, transcription
from .address import Address
from .answer import read_completion
from .events import FrameReader
from .model_flags import ModelFlags, flags_of
from .native import NativeFrames, accepted_fields, native_body, native_completion, native_of
from .parallel import in_parallel
from .request import chat_body
from .texts import CountedTemplate, TextFrames, read_text
from .usage import image_usage
from .wire import Blob, WireAnswer, read_answer, read_whole

WHOLE, STREAM, BATCH = "generateContent", "streamGenerateContent?alt=sse", "batchEmbedContents"
AT_ONCE = 4  # upstream calls that one request may have under way
MIB = 1024 * 1024

Body = bytes | transcription.AudioBody


class GeminiProvider(Provider, Chat, Embeddings, Images, Speech, Transcription):
    """Gemini under one credential."""

    name = "gemini"
    chat_fields: ClassVar[frozenset[str] | None] = CHAT_FIELDS | {
        "n",
        "logprobs",
        "top_logprobs",
        "modalities",
        "audio",
        "input_audio",
        "file",
        "presence_penalty",
        "frequency_penalty",
        "seed",
    }
    embedding_fields: ClassVar[frozenset[str] | None] = frozenset({"dimensions", "encoding_format"})
    image_fields: ClassVar[frozenset[str] | None] = frozenset({"n", "size", "response_format", "output_format"})
    speech_fields: ClassVar[frozenset[str] | None] = frozenset({"instructions", "response_format", "stream_format"})
    speech_formats: ClassVar[frozenset[str]] = speech.FORMATS
    transcription_fields: ClassVar[frozenset[str] | None] = frozenset(
        {"language", "languages", "prompt", "keywords", "response_format", "temperature", "stream"}
    )
    transcript_formats: ClassVar[frozenset[str]] = transcription.FORMATS

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        api_key: Secret | None = None  # of the developer API
        base_url: str = ""  # up to and with the API's version; empty: Google's own
        headers: SecretHeaders = {}  # sent with every request
        project: str = ""  # of Google Cloud: Vertex, not the developer API
        location: str = ""  # a region, "us", "eu" or "global"
        service_account: Secret | None = None  # its key as JSON; none: what the environment offers
        auth: Literal["google", "none"] = "google"  # none: a proxy at base_url adds credentials of its own
        safety: dict[str, str] = {}  # thresholds by category: HARM_CATEGORY_HARASSMENT = "BLOCK_ONLY_HIGH"
        voices: dict[str, str] = {}  # Gemini's voices by the names callers use
        task_type: str = ""  # of embeddings, such as RETRIEVAL_DOCUMENT
        max_inline_audio: int = 14 * MIB  # bytes of audio to transcribe: 20 MB of request, as base64
        models: dict[str, ModelFlags] = {}  # by a pattern of the upstream's names; the first that matches wins

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._address = Address(base_url=options.base_url, project=options.project, location=options.location)
        if self._address.vertex and options.api_key is not None:
            raise ValueError("api_key is of the developer API; Vertex takes a service_account")
        if not self._address.vertex and options.service_account is not None:
            raise ValueError("service_account is of Vertex, which needs project and location")
        self._safety = [{"category": name, "threshold": level} for name, level in options.safety.items()]
        self._flags_of = cache(partial(flags_of, configured=options.models))  # as many as there are targets
        self._credentials: FixedHeaders | VertexToken = FixedHeaders({})

    async def start(self) -> None:
        """Read the key, or find Google's credentials, once: both may come from files."""
        options = self.options
        common = {**JSON_HEADERS, **reveal_headers(options.headers)}
        if options.auth == "none":
            self._credentials = FixedHeaders(common)
        elif self._address.vertex:
            self._credentials = await vertex_token(options.service_account, common)
        elif options.api_key is not None:
            key = options.api_key.reveal()
            self._credentials = FixedHeaders({**common, "x-goog-api-key": key}, hidden=(key,))
        else:
            raise ValueError("an api_key is needed, or project and location for Vertex")

    async def close(self) -> None:
        """End a renewal that is under way."""
        if isinstance(self._credentials, VertexToken):
            await self._credentials.close()

    @property
    def _hidden(self) -> tuple[str, ...]:
        """Texts that no error may show."""
        return (*self._address.hidden, *self._credentials.hidden, *self.secret_texts)

    # Chat ------------------------------------------------------------------------------------------------------------

    def prefill(self, target: Target) -> str:
        return "assistant"

    def cache_marks(self, request: ChatRequest, target: Target) -> frozenset[str]:
        return frozenset()  # its cache finds prompts by itself

    def accepted_fields(self, dialect: str, target: Target) -> AcceptedFields | None:
        """Requests in Gemini's own dialect are passed through."""
        return accepted_fields(dialect, has_safety=bool(self._safety))

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        body = await self._whole(target, WHOLE, self._chat_body(request, target))
        audio_format = request.audio.format if request.audio else "pcm16"
        completion = read_completion(body, self._hidden, audio_format=audio_format, model=target.model)
        return completion if native_of(request) is None else native_completion(completion, body)

    def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream; usage comes with its frames."""
        lane = TextLane()
        return LanedStream(self._chunks(request, target, lane), lane)

    async def _chunks(self, request: ChatRequest, target: Target, lane: TextLane) -> AsyncGenerator[ChatChunk]:
        async with await self._send(target, STREAM, self._chat_body(request, target)) as answer:
            await raise_for_status(answer, self._hidden)
            reader = FrameReader(self._hidden, model=target.model)
            frames = reader if native_of(request) is None else NativeFrames(reader)
            if _is_json(answer):
                for chunk in reader.read_document(await answer.read()):  # an error, or a server that does not stream
                    yield chunk
            else:
                text_events = TextFrames(lane, read_text, CountedTemplate, is_counted=True)
                while events := await answer.read_events(text_events.takes):
                    for event in (one for arrived in events for one in text_events.events(arrived)):
                        for chunk in frames.read(event):
                            text_events.set_template(event, chunk)
                            yield chunk
            if not reader.finished:
                raise UpstreamTruncated()
            answer.release()

    def _chat_body(self, request: ChatRequest, target: Target) -> bytes:
        flags, native = self._flags_of(target.model), native_of(request)
        if native is not None:
            return native_body(request, native, safety=self._safety, signatures=flags.signatures)
        return chat_body(request, flags, safety=self._safety, voices=self.options.voices)

    # The other endpoints ---------------------------------------------------------------------------------------------

    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        """One vector for each text, a hundred texts a call."""
        bodies = embedding.batch_bodies(
            request, target.model, vertex=self._address.vertex, task_type=self.options.task_type
        )

        async def batch(body: bytes) -> embedding.WireVectors:
            return embedding.read_vectors(await self._whole(target, BATCH, body), self._hidden)

        answers = await in_parallel([partial(batch, body) for body in bodies], at_once=AT_ONCE)
        return embedding.joined(answers, request)

    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        """Each image by a call of its own: Gemini makes one at a time."""
        body = images.image_body(request, safety=self._safety, vertex=self._address.vertex)
        drawn: list[tuple[Blob, ImageUsage | None]] = []

        async def draw() -> None:
            answer = read_whole(await self._whole(target, WHOLE, body), self._hidden)
            drawn.append((images.read_image(answer), image_usage(answer.usage_metadata)))

        try:
            await in_parallel([draw] * request.count, at_once=AT_ONCE)
        except GatewayError:
            if not drawn:
                raise
            # The images that were made are charged by Google whatever became of the others.
        return ImageAnswer(
            [images.generated(blob) for blob, _ in drawn],
            usage=images.added([usage for _, usage in drawn]),
            output_format=drawn[0][0].mime_type.removeprefix("image/"),
        )

    async def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """The audio as it is made."""
        body = speech.speech_body(request, voices=self.options.voices)
        reader = speech.SpeechReader(request)
        async with aclosing(self._frames(target, body)) as frames:
            async for frame in frames:
                for chunk in reader.read(frame):
                    yield chunk
        reader.close()

    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """The whole transcript."""
        audio = transcription.AudioBody(request, most=self.options.max_inline_audio)
        reader = transcription.TranscriptReader()
        reader.read(read_whole(await self._whole(target, WHOLE, audio), self._hidden))
        return reader.transcript()

    async def stream_transcript(self, request: TranscriptionRequest, target: Target) -> AsyncIterator[TranscriptEvent]:
        """Text as it is heard, and the whole at the end."""
        audio = transcription.AudioBody(request, most=self.options.max_inline_audio)
        reader = transcription.TranscriptReader()
        async with aclosing(self._frames(target, audio)) as frames:
            async for frame in frames:
                if text := reader.read(frame):
                    yield TranscriptEvent(delta=text)
        yield TranscriptEvent(done=reader.transcript())

    # The way out -----------------------------------------------------------------------------------------------------

    async def _whole(self, target: Target, verb: str, body: Body) -> bytes:
        """The JSON document of a whole answer."""
        async with await self._send(target, verb, body) as answer:
            await raise_for_status(answer, self._hidden)
            return await answer.read()

    async def _frames(self, target: Target, body: Body) -> AsyncGenerator[WireAnswer, None]:
        """The frames of a stream; whoever reads them knows whether the last one was the end."""
        async with await self._send(target, STREAM, body) as answer:
            await raise_for_status(answer, self._hidden)
            if _is_json(answer):
                yield read_whole(await answer.read(), self._hidden)
                return
            while events := await answer.read_events():
                for event in events:
                    yield read_answer(event.data, self._hidden)

    async def _send(self, target: Target, verb: str, body: Body) -> Answer:
        headers = await self._credentials.headers()
        content = body if isinstance(body, bytes) else body.chunks()
        if not isinstance(body, bytes):
            headers = {**headers, "Content-Length": str(body.length)}
        url = self._address.method(target.model, verb)
        return await self.upstream.send("POST", url, headers=headers, body=content, timeouts=target.timeouts)


def _is_json(answer: Answer) -> bool:
    return answer.headers.get("Content-Type", "").startswith("application/json")


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `gemini` plugin."""
    register(GeminiProvider)

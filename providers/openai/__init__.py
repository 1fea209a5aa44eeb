"""Every server that speaks OpenAI's dialect: OpenAI itself, DeepSeek, Groq, Mistral, xAI, Together, OpenRouter, vLLM, …

Such a vendor needs configuration, not code::

    [providers.groq]
    plugin = "openai"
    base_url = "https://api.groq.com/openai/v1"
    api_key = "env:GROQ_API_KEY"

The caller's fields are forwarded as they were sent; answers are read into the gateway's own shapes, so that a vendor's
peculiarities and anything unknown end here. Sharp edge: whether an end of stream without `[DONE]` counts as complete
depends on `stream_end`; "auto" demands the marker of api.openai.com only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from gateway import Answer, Chat, ChatChunk, ChatCompletion, ChatRequest, Provider, Target, Upstream, hookimpl
from gateway.errors import UpstreamTruncated
from gateway.sse import DONE_DATA

from .chunks import ChunkReader, read_completion
from .embeddings import OpenAIEmbeddings
from .images import OpenAIImages
from .request import chat_body
from .server import OpenAIServer
from .speech import OpenAISpeech
from .transcription import OpenAITranscription


class OpenAIProvider(OpenAIEmbeddings, OpenAIImages, OpenAISpeech, OpenAITranscription, OpenAIServer, Chat):
    """One OpenAI-compatible server and one credential."""

    name = "openai"

    def __init__(self, options: OpenAIServer.Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._needs_done = options.stream_end == "done" or (options.stream_end == "auto" and self.official)

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        answer = await self._send(request, target, stream=False)
        try:
            return read_completion(await answer.read(), self.hidden)
        finally:
            answer.close()

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream; usage is always asked for."""
        async with await self._send(request, target, stream=True) as answer:
            reader = ChunkReader(self.hidden)
            if answer.headers.get("Content-Type", "").startswith("application/json"):
                yield reader.read_whole(await answer.read())  # an error, or a server that does not stream
                return
            while events := await answer.read_events():
                for event in events:
                    if event.data == DONE_DATA:
                        answer.release()
                        return
                    chunk = reader.read(event)
                    if chunk is not None:
                        yield chunk
            if self._needs_done or not reader.finished:
                raise UpstreamTruncated()

    def _send(self, request: ChatRequest, target: Target, *, stream: bool) -> Awaitable[Answer]:
        return self.post("/chat/completions", chat_body(request, target, self.options, stream=stream), target)


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `openai` plugin."""
    register(OpenAIProvider)

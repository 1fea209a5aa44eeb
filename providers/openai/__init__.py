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

from collections.abc import AsyncIterator, Callable
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from gateway import (
    Answer,
    Chat,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    Provider,
    Secret,
    Target,
    Upstream,
    hookimpl,
)
from gateway.errors import UpstreamTruncated
from gateway.sse import DONE_DATA

from ..upstream_errors import raise_for_status
from .chunks import ChunkReader, read_completion
from .request import chat_body


class OpenAIProvider(Provider, Chat):
    """One OpenAI-compatible server and one credential."""

    name = "openai"

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        base_url: str = "https://api.openai.com/v1"
        api_key: Secret | None = None  # none for servers that want none
        headers: dict[str, str] = {}  # sent with every request
        organization: str = ""
        project: str = ""
        no_stream_options: bool = False  # for servers that refuse the field; usage is then estimated
        stream_end: Literal["auto", "done", "finish"] = "auto"  # what proves a stream complete
        rename: dict[str, str] = {}  # request fields that the server spells otherwise: seed = "random_seed"
        reasoning_effort: dict[str, str] = {}  # efforts that the server calls otherwise: minimal = "low"

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        address = urlsplit(options.base_url)
        if address.scheme not in {"http", "https"} or not address.hostname or address.username is not None:
            raise ValueError("base_url must be an http or https address without credentials")
        self._chat_url = f"{options.base_url.rstrip('/')}/chat/completions"
        self._needs_done = options.stream_end == "done" or (
            options.stream_end == "auto" and address.hostname == "api.openai.com"
        )
        self._headers: dict[str, str] = {}
        self._hidden: tuple[str, ...] = (address.netloc,)  # never to appear in an error

    async def start(self) -> None:
        """Read the key, once: it may come from a file."""
        options = self.options
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if options.organization:
            self._headers["OpenAI-Organization"] = options.organization
        if options.project:
            self._headers["OpenAI-Project"] = options.project
        if options.api_key is not None:
            key = options.api_key.reveal()
            self._headers["Authorization"] = f"Bearer {key}"
            self._hidden = (*self._hidden, key)
        self._headers.update(options.headers)

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        async with await self._send(request, target, stream=False) as answer:
            await raise_for_status(answer, self._hidden)
            return read_completion(await answer.read(), self._hidden)

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream; usage is always asked for."""
        async with await self._send(request, target, stream=True) as answer:
            await raise_for_status(answer, self._hidden)
            reader = ChunkReader(self._hidden)
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

    async def _send(self, request: ChatRequest, target: Target, *, stream: bool) -> Answer:
        return await self.upstream.send(
            "POST",
            self._chat_url,
            headers=self._headers,
            body=chat_body(request, target, self.options, stream=stream),
            timeouts=target.timeouts,
        )


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `openai` plugin."""
    register(OpenAIProvider)

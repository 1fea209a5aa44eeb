"""Anthropic's Messages API, and the servers that speak its dialect.

::

    [providers.anthropic]
    plugin = "anthropic"
    api_key = "env:ANTHROPIC_API_KEY"

    [providers.anthropic.models."claude-sonnet-4-5*"]     # only where the built-in flags are wrong
    default_max_tokens = 8192

Requests are translated by `request` and `blocks`, whole answers by `answer`, streams by `events`. What tells models
apart is data: `models`. Sharp edge: no chunk comes before the model has said something, so that an overload
which Anthropic reports inside the stream can still be answered by another target.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from typing import ClassVar, Literal

from msgspec import field

from gateway import (
    Answer,
    Chat,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    Provider,
    Target,
    Upstream,
    hookimpl,
)
from gateway.errors import UpstreamTruncated

from .._shared.chat_parts import CHAT_FIELDS
from .._shared.http_provider import HttpOptions, HttpProvider
from .answer import read_completion
from .events import EventReader
from .models import ModelFlags, traits_of
from .request import chat_body, output_limit


class AnthropicProvider(HttpProvider, Chat):
    """One server of the Messages dialect and one credential."""

    name = "anthropic"
    chat_fields: ClassVar[frozenset[str] | None] = CHAT_FIELDS | {
        "parallel_tool_calls",
        "file",
        "user",
        "safety_identifier",
    }

    class Options(HttpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        base_url: str = "https://api.anthropic.com"
        auth: Literal["x-api-key", "bearer"] = "x-api-key"  # how the key is sent
        # by a pattern of the upstream's names; the first that says a flag wins
        models: dict[str, ModelFlags] = field(default_factory=dict)

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._url = f"{self.base_url.removesuffix('/v1')}/v1/messages"
        self._traits_of = cache(partial(traits_of, configured=options.models))  # as many as there are targets

    def credentials(self) -> dict[str, str]:
        if self.options.api_key is None:
            return {}
        key = self.reveal(self.options.api_key)
        return {"x-api-key": key} if self.options.auth == "x-api-key" else {"Authorization": f"Bearer {key}"}

    def output_limit(self, request: ChatRequest, target: Target) -> int:
        return output_limit(request, self._traits_of(target.model))

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        async with await self._send(request, target, stream=False) as answer:
            return read_completion(await answer.read(), self.hidden)

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream, from the first that says something."""
        async with await self._send(request, target, stream=True) as answer:
            reader = EventReader(self.hidden)
            if answer.headers.get("Content-Type", "").startswith("application/json"):
                yield reader.read_whole(await answer.read())  # an error, or a server that does not stream
                return
            while events := await answer.read_events():
                for event in events:
                    chunk = reader.read(event)
                    if chunk is not None:
                        yield chunk
                if reader.complete:
                    answer.release()
                    return
            raise UpstreamTruncated()

    async def _send(self, request: ChatRequest, target: Target, *, stream: bool) -> Answer:
        traits = self._traits_of(target.model)
        body = chat_body(request, target.model, traits, stream=stream)
        return await self.post_url(
            self._url, body, target, headers={"anthropic-version": traits.version, **self.headers}
        )


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `anthropic` plugin."""
    register(AnthropicProvider)

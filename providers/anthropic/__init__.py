"""Anthropic's Messages API, and the servers that speak its dialect.

::

    [providers.anthropic]
    plugin = "anthropic"
    api_key = "env:ANTHROPIC_API_KEY"

    [providers.anthropic.models."claude-sonnet-4-5*"]     # only where the built-in flags are wrong
    default_max_tokens = 8192

Requests are translated by `request` and `blocks`, whole answers by `answer`, streams by `events`. Messages requests are
forwarded by `native` and `native_events`. What tells models apart is data: `models`; so is what Anthropic takes:
`accepted`. Sharp edge: no chunk comes before the model has said something, so that an overload
which Anthropic reports inside the stream can still be answered by another target.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from typing import ClassVar, Literal

import msgspec
from msgspec import field

from gateway import (
    AcceptedFields,
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
from gateway.schemas.native_request import MESSAGES

from .._shared.accepts import Accepts, accepted_with
from .._shared.chat_parts import CHAT_FIELDS
from .._shared.http_provider import HttpOptions, HttpProvider
from .._shared.whole_stream import chunks_of, folded, is_event_stream
from .accepted import ACCEPTED, CHAT_SAMPLING, accepted_by_model
from .answer import read_completion
from .events import EventReader
from .models import ModelFlags, traits_of
from .native import flags_of, joined, native_body, native_of
from .native_events import NativeReader, read_native_completion
from .request import chat_body, output_limit

BETA = "anthropic-beta"

_encoder = msgspec.json.Encoder()


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
        accepts: Accepts = Accepts()  # of Messages requests

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._url = f"{self.base_url.removesuffix('/v1')}/v1/messages"
        self._accepted = accepted_with(ACCEPTED, options.accepts)
        self._traits_of = cache(partial(traits_of, configured=options.models))  # as many as there are targets

    def credentials(self) -> dict[str, str]:
        if self.options.api_key is None:
            return {}
        key = self.reveal(self.options.api_key)
        return {"x-api-key": key} if self.options.auth == "x-api-key" else {"Authorization": f"Bearer {key}"}

    def output_limit(self, request: ChatRequest, target: Target) -> int:
        return output_limit(request, self._traits_of(target.model))

    def accepted_fields(self, dialect: str, target: Target) -> AcceptedFields | None:
        if dialect != MESSAGES:
            return None
        return accepted_by_model(self._accepted, self._traits_of(target.model))

    def refused_sampling(self, target: Target) -> frozenset[str]:
        """Those of a chat request, for the models that take none."""
        return frozenset() if self._traits_of(target.model).sampling else CHAT_SAMPLING

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        async with await self._send(request, target, stream=False) as answer:
            body = await answer.read()
        if native_of(request) is not None and not is_event_stream(body):
            return read_native_completion(body, self.hidden)
        if is_event_stream(body):
            return await folded(chunks_of(body, EventReader(self.hidden)))
        return read_completion(body, self.hidden)

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream, from the first that says something."""
        async with await self._send(request, target, stream=True) as answer:
            if answer.headers.get("Content-Type", "").startswith("application/json"):
                # An error, or a server that does not stream.
                yield EventReader(self.hidden).read_whole(await answer.read())
                return
            reader = NativeReader(self.hidden) if native_of(request) is not None else EventReader(self.hidden)
            while events := await answer.read_events():
                for event in events:
                    found = reader.read(event)
                    if isinstance(found, list):
                        for chunk in found:
                            yield chunk
                    elif found is not None:
                        yield found
                if reader.complete:
                    answer.release()
                    return
            raise UpstreamTruncated()

    async def _send(self, request: ChatRequest, target: Target, *, stream: bool) -> Answer:
        traits = self._traits_of(target.model)
        headers = {"anthropic-version": traits.version, **self.headers}
        native = native_of(request)
        if native is None:
            body = chat_body(request, target.model, traits, stream=stream)
        else:
            fields = native_body(request, native, target.model, traits)
            body = _encoder.encode({"model": target.model, **fields, **({"stream": True} if stream else {})})
            name = next((name for name in headers if name.lower() == BETA), BETA)
            if flags := joined(flags_of(native), headers.get(name, "")):
                headers[name] = flags
        return await self.post_url(self._url, body, target, headers=headers)


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `anthropic` plugin."""
    register(AnthropicProvider)

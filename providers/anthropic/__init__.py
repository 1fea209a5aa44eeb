"""Anthropic's Messages API, and the servers that speak its dialect.

::

    [providers.anthropic]
    plugin = "anthropic"
    api_key = "env:ANTHROPIC_API_KEY"

    [providers.anthropic.models."claude-sonnet-4-5*"]     # only where the built-in flags are wrong
    default_max_tokens = 8192

    [providers.claude-vertex]             # needs the extra: pip install 'model-gateway[vertex]'
    plugin = "anthropic"
    project = "my-project"
    location = "europe-west4"
    service_account = "file:/run/secrets/service-account.json"  # without it, the environment's own

Requests are translated by `request` and `blocks`, whole answers by `answer`, streams by `events`. Messages requests are
forwarded by `native` and `native_events`. `services` has what sets Vertex AI apart from Anthropic's API. What tells
models apart is data: `models`; so is what each service takes: `accepted`. Sharp edge: no chunk comes before the model
has said something, so that an overload which the service reports inside the stream can still be answered by another
target.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
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
    LanedStream,
    Provider,
    Secret,
    Target,
    TextLane,
    Upstream,
    hookimpl,
)
from gateway.errors import UpstreamTruncated
from gateway.schemas.native_request import MESSAGES

from .._shared.accepts import Accepts, accepted_with
from .._shared.chat_parts import CHAT_FIELDS
from .._shared.google_credentials import VertexToken, vertex_token
from .._shared.http_provider import HttpOptions, HttpProvider
from .._shared.text_events import TextEvents
from .._shared.vertex_address import is_vertex, vertex_host
from .._shared.whole_stream import chunks_of, folded, is_event_stream
from .accepted import CHAT_SAMPLING, accepted_by_model
from .answer import read_completion
from .events import EventReader, read_text
from .models import ModelFlags, traits_of
from .native import flags_of, joined, native_body, native_of
from .native_events import NativeReader, read_native_completion
from .request import chat_body, output_limit
from .services import AnthropicService, VertexService

ANTHROPIC = "https://api.anthropic.com"
BETA = "anthropic-beta"

_encoder = msgspec.json.Encoder()


class AnthropicProvider(HttpProvider, Chat):
    """One server of the Messages dialect, or one project on Vertex, and one credential."""

    name = "anthropic"
    chat_fields: ClassVar[frozenset[str] | None] = CHAT_FIELDS | {
        "parallel_tool_calls",
        "file",
        "user",
        "safety_identifier",
    }

    class Options(HttpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        base_url: str = ""  # empty: Anthropic's own, or Vertex's; for Vertex up to and with the API's version
        # how the key is sent; google, none: on Vertex, none for a proxy at base_url that adds credentials of its own
        auth: Literal["x-api-key", "bearer", "google", "none"] | None = None
        project: str = ""  # of Google Cloud: Vertex, not Anthropic's API
        location: str = ""  # a region, "us", "eu" or "global"
        service_account: Secret | None = None  # its key as JSON; none: what the environment offers
        # by a pattern of the upstream's names; the first that says a flag wins
        models: dict[str, ModelFlags] = field(default_factory=dict)
        accepts: Accepts = Accepts()  # of Messages requests

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        on_vertex = is_vertex(options.project, options.location)
        _check_credentials(options, on_vertex=on_vertex)
        own = vertex_host(options.location) if on_vertex else ANTHROPIC
        super().__init__(options, upstream, base_url=options.base_url or own)
        self._service: AnthropicService | VertexService
        if on_vertex:
            self._service = VertexService(self.base_url, options.project, options.location)
            self.hidden = (*self.hidden, options.project)
        else:
            self._service = AnthropicService(self.base_url)
        self._fixed_hidden = self.hidden  # without the texts of a token
        self._token: VertexToken | None = None
        self._accepted = accepted_with(self._service.accepted, options.accepts)
        self._traits_of = cache(partial(traits_of, configured=options.models))  # as many as there are targets

    async def start(self) -> None:
        """Read the key, or find Google's credentials, once: both may come from files."""
        await super().start()
        self._fixed_hidden = self.hidden
        if isinstance(self._service, VertexService) and self.options.auth != "none":
            self._token = await vertex_token(self.options.service_account, self.headers)

    async def close(self) -> None:
        """End a renewal that is under way."""
        if self._token is not None:
            await self._token.close()

    def credentials(self) -> dict[str, str]:
        if self.options.api_key is None:
            return {}
        key = self.reveal(self.options.api_key)
        return {"Authorization": f"Bearer {key}"} if self.options.auth == "bearer" else {"x-api-key": key}

    def output_limit(self, request: ChatRequest, target: Target) -> int:
        return output_limit(request, self._traits_of(target.model))

    def accepted_fields(self, dialect: str, target: Target) -> AcceptedFields | None:
        if dialect != MESSAGES:
            return None
        return accepted_by_model(self._accepted, self._traits_of(target.model))

    def prefill(self, target: Target) -> str:
        return "assistant" if self._traits_of(target.model).prefill else "none"

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

    def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream, from the first that says something."""
        lane = TextLane()
        return LanedStream(self._chunks(request, target, lane), lane)

    async def _chunks(self, request: ChatRequest, target: Target, lane: TextLane) -> AsyncGenerator[ChatChunk]:
        async with await self._send(request, target, stream=True) as answer:
            if answer.headers.get("Content-Type", "").startswith("application/json"):
                # An error, or a server that does not stream.
                yield EventReader(self.hidden).read_whole(await answer.read())
                return
            reader = NativeReader(self.hidden) if native_of(request) is not None else EventReader(self.hidden)
            read = reader.read if isinstance(reader, NativeReader) else reader.chunks
            text_events = TextEvents(lane, read_text)
            while events := await answer.read_events(text_events.takes):
                for event in events:
                    for chunk in read(event):
                        text_events.set_template(event, chunk)
                        yield chunk
                if reader.complete:
                    answer.release()
                    return
            raise UpstreamTruncated()

    async def raise_for_status(self, answer: Answer) -> None:
        await self._service.raise_for_status(answer, self.hidden)

    async def _send(self, request: ChatRequest, target: Target, *, stream: bool) -> Answer:
        traits, native = self._traits_of(target.model), native_of(request)
        version = native.version if native is not None else ""
        headers = {**self._service.headers(traits, version), **await self._credential_headers()}
        if native is None:
            fields = chat_body(request, traits)
        else:
            native = self._service.fitted(native, self._accepted)
            fields = native_body(request, native, target.model, traits)
            name = next((name for name in headers if name.lower() == BETA), BETA)
            if flags := joined(flags_of(native), headers.get(name, "")):
                headers[name] = flags
        if stream:
            fields["stream"] = True
        url = self._service.url(target.model, stream=stream)
        body = _encoder.encode(self._service.body(fields, target.model, traits))
        return await self.post_url(url, body, target, headers=headers)

    async def _credential_headers(self) -> dict[str, str]:
        """The headers of every request, with a token that is good on Vertex; UpstreamAuthError if Google gives none."""
        if self._token is None:
            return self.headers
        headers = await self._token.headers()
        self.hidden = (*self._fixed_hidden, *self._token.hidden)
        return headers


def _check_credentials(options: AnthropicProvider.Options, *, on_vertex: bool) -> None:
    """ValueError for a credential of the other service."""
    if on_vertex and options.api_key is not None:
        raise ValueError("api_key is of Anthropic's API; Vertex takes a service_account")
    if on_vertex and options.auth in {"x-api-key", "bearer"}:
        raise ValueError('auth on Vertex is "google" or "none"')
    if not on_vertex and options.service_account is not None:
        raise ValueError("service_account is of Vertex, which needs project and location")
    if not on_vertex and options.auth in {"google", "none"}:
        raise ValueError(f'auth "{options.auth}" is of Vertex, which needs project and location')


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `anthropic` plugin."""
    register(AnthropicProvider)

"""Amazon Bedrock's Converse and ConverseStream: every chat model of one region in one dialect.

::

    [providers.bedrock]
    plugin = "bedrock"
    region = "eu-west-1"
    api_key = "env:AWS_BEARER_TOKEN_BEDROCK"      # or access_key_id and secret_access_key; or neither

Without any key AWS's own chain of credentials is used (environment, shared files, container, instance), which needs the
extra `model-gateway[bedrock]`. Requests are translated by `request` and `blocks`, whole answers by `answer`, streams by
`event_stream` and `events`. Sharp edge: a stream is whole only with its `metadata` event, which follows the finish.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from typing import ClassVar
from urllib.parse import quote

from msgspec import Struct

from gateway import (
    AcceptedFields,
    Answer,
    Chat,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    NativeRequest,
    Provider,
    Secret,
    Target,
    Upstream,
    hookimpl,
)
from gateway.errors import UpstreamTruncated
from gateway.schemas.native_request import MESSAGES

from .._shared.accepts import Accepts, accepted_with
from .._shared.chat_parts import CHAT_FIELDS
from .._shared.http_provider import checked_base_url
from .._shared.whole_stream import chunk_of
from ..anthropic.accepted import CHAT_SAMPLING, accepted_by_model
from ..anthropic.events import EventReader as MessagesReader
from ..anthropic.native import native_of
from ..anthropic.native_events import read_native_completion
from .accepted import ACCEPTED
from .answer import read_completion
from .credentials import ChainedCredentials
from .errors import raise_for_status
from .event_stream import FrameDecoder
from .events import EventReader
from .models import BedrockFlags, model_of
from .native import INVOKE, INVOKE_STREAM, NativeFrames, invoke_body
from .request import converse_body
from .signature import Credentials, Signer, hash_of

LARGE_BODY = 1024 * 1024  # bytes from which a body is hashed in a thread, which hashlib lets run beside the loop

_REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+")


class BedrockProvider(Provider, Chat):
    """One region of one account."""

    name = "bedrock"
    chat_fields: ClassVar[frozenset[str] | None] = CHAT_FIELDS | {"input_audio", "file", "service_tier", "metadata"}

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        region: str
        base_url: str = ""  # the region's public endpoint, unless a private one is used
        api_key: Secret | None = None  # a Bedrock API key, sent as it is
        access_key_id: Secret | None = None  # with secret_access_key: requests are signed
        secret_access_key: Secret | None = None
        session_token: Secret | None = None  # of keys that expire
        profile: str = ""  # section of AWS's shared files, when no key is given
        models: dict[str, BedrockFlags] = {}  # by a pattern of Bedrock's names; the first that says a flag wins

        accepts: Accepts = Accepts()  # of Messages requests

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        if not _REGION.fullmatch(options.region):
            raise ValueError("region must be the name of an AWS region, as in eu-west-1")
        _check_keys(options)
        self._base_url, host = checked_base_url(options.base_url or _endpoint(options.region))
        self._hidden: tuple[str, ...] = (host,)  # never to appear in an error
        self._accepted = accepted_with(ACCEPTED, options.accepts)
        self._model = cache(partial(model_of, configured=options.models))  # as many as there are targets
        self._signer = Signer(options.region)
        self._source: Credentials | ChainedCredentials | None = None
        self._bearer: dict[str, str] = {}

    async def start(self) -> None:
        """Read the keys, or walk AWS's chain, once."""
        options = self.options
        if options.api_key is not None:
            key = options.api_key.reveal()
            self._bearer = {"content-type": "application/json", "authorization": f"Bearer {key}"}
            self._hidden = (*self._hidden, key)
        elif options.access_key_id is not None and options.secret_access_key is not None:
            token = options.session_token.reveal() if options.session_token is not None else ""
            self._source = Credentials(
                access_key_id=options.access_key_id.reveal(),
                secret_access_key=options.secret_access_key.reveal(),
                session_token=token,
            )
        else:
            self._source = await ChainedCredentials.find(options.profile)

    def cache_marks(self, request: ChatRequest, target: Target) -> frozenset[str]:
        return request.cache_marks if self._model(target.model).cache_points else frozenset()

    def accepted_fields(self, dialect: str, target: Target) -> AcceptedFields | None:
        """Messages requests go to Claude models as they came."""
        model = self._model(target.model)
        if dialect != MESSAGES or not model.native_messages:
            return None
        return accepted_by_model(self._accepted, model.traits)

    def prefill(self, target: Target) -> str:
        model = self._model(target.model)
        knows = model.traits.prefill if model.claude else "amazon.nova" in target.model
        return "assistant" if knows else "none"

    def refused_sampling(self, target: Target) -> frozenset[str]:
        """Those of a chat request, for the models that take none."""
        return frozenset() if self._model(target.model).traits.sampling else CHAT_SAMPLING

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        native = self._native_of(request, target)
        answer, hidden = await self._send(request, native, target, INVOKE if native else "converse")
        async with answer:
            await raise_for_status(answer, hidden)
            body = await answer.read()
            if native is not None:
                return read_native_completion(body, hidden)
            return read_completion(body, hidden, asked_tier=request.service_tier)

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream."""
        native = self._native_of(request, target)
        answer, hidden = await self._send(request, native, target, INVOKE_STREAM if native else "converse-stream")
        async with answer:
            await raise_for_status(answer, hidden)
            if answer.headers.get("Content-Type", "").startswith(("application/json", "text/")):
                yield _whole_chunk(await answer.read(), request, native, hidden)  # a server that does not stream
                return
            reader = NativeFrames(hidden) if native else EventReader(hidden, asked_tier=request.service_tier)
            decoder = FrameDecoder()
            while piece := await answer.read_chunk():
                for frame in decoder.feed(piece):
                    for chunk in reader.read(frame):
                        yield chunk
                if reader.complete:
                    answer.release()
                    return
            decoder.end()
            raise UpstreamTruncated()

    def _native_of(self, request: ChatRequest, target: Target) -> NativeRequest | None:
        return native_of(request) if self._model(target.model).native_messages else None

    async def _send(
        self, request: ChatRequest, native: NativeRequest | None, target: Target, operation: str
    ) -> tuple[Answer, tuple[str, ...]]:
        """The answer, and the texts that no error about it may show."""
        url = f"{self._base_url}/model/{quote(target.model, safe='')}/{operation}"
        model = self._model(target.model)
        body = (
            converse_body(request, model)
            if native is None
            else invoke_body(request, native, model.traits, self._accepted)
        )
        headers, hidden = await self._headers(url, body)
        answer = await self.upstream.send("POST", url, headers=headers, body=body, timeouts=target.timeouts)
        return answer, hidden

    async def _headers(self, url: str, body: bytes) -> tuple[dict[str, str], tuple[str, ...]]:
        source = self._source
        if source is None:
            return self._bearer, self._hidden
        credentials = source if isinstance(source, Credentials) else await source.current()
        body_hash = hash_of(body) if len(body) < LARGE_BODY else await asyncio.to_thread(hash_of, body)
        headers = self._signer.headers(credentials, url, body_hash=body_hash, at=time.time())
        return headers, (*self._hidden, *credentials.texts)


def _whole_chunk(body: bytes, request: ChatRequest, native: NativeRequest | None, hidden: tuple[str, ...]) -> ChatChunk:
    """A whole answer as the only chunk of a stream."""
    if native is not None:
        return MessagesReader(hidden).read_whole(body)
    return chunk_of(read_completion(body, hidden, asked_tier=request.service_tier))


def _check_keys(options: BedrockProvider.Options) -> None:
    """One way to prove who we are, and that one whole."""
    pair = (options.access_key_id, options.secret_access_key)
    if (pair[0] is None) != (pair[1] is None):
        raise ValueError("access_key_id and secret_access_key belong together")
    if options.session_token is not None and pair[0] is None:
        raise ValueError("session_token needs access_key_id and secret_access_key")
    if options.api_key is not None and (pair[0] is not None or options.profile):
        raise ValueError("api_key excludes access keys and profile")
    if pair[0] is not None and options.profile:
        raise ValueError("profile excludes access keys")


def _endpoint(region: str) -> str:
    return f"https://bedrock-runtime.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `bedrock` plugin."""
    register(BedrockProvider)

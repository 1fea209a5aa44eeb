"""Chat at OpenAI-compatible servers: one JSON answer, or the chunks of one event stream.

Sharp edge: whether an end of stream without `[DONE]` counts as complete depends on `stream_end`; "auto" demands the
marker of api.openai.com only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Sequence
from typing import ClassVar

from gateway import (
    AcceptedFields,
    Answer,
    Chat,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    LanedStream,
    Target,
    TextLane,
    Upstream,
)
from gateway.errors import UpstreamTruncated
from gateway.schemas.native_request import COMPLETIONS, RESPONSES, NativeRequest
from gateway.sse import DONE_DATA

from .._shared.text_events import TextEvents
from .._shared.whole_stream import events_of, folded, is_event_stream
from .cache_marks import taken
from .chunks import ChunkReader, read_completion, read_text
from .completions import PATH, completions_body, read_text_stream, read_texts
from .completions_fields import ALL, COUNT_ONE, accepted_completions, is_completions_model
from .request import CACHE_KEY, chat_body, is_header_text, without_cache_key
from .responses import compaction_body, read_compaction, read_response, read_responses, responses_body
from .responses_fields import OPENAI, Support, accepted_by
from .server import OpenAIServer, SharedOptions
from .unnamed_errors import raise_unnamed_error


class OpenAIChat(OpenAIServer, Chat):
    """`POST /chat/completions`, and `POST /responses` and `POST /completions` where the server has them."""

    preset: str | None = None

    chat_fields: ClassVar[frozenset[str] | None] = None

    @property
    def responses(self) -> Support:
        """The server's support of the Responses API, unless the options say otherwise."""
        return OPENAI

    def __init__(self, options: SharedOptions, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self.chat_fields = self.quirks.chat_fields  # type: ignore[misc]  # by the server, not by the class
        if self.official:
            self.limit_field = "max_completion_tokens"  # its reasoning models refuse max_tokens
        self._responses = accepted_by(options, self.responses)
        self._completions = accepted_completions(options, self.preset, self.forwarded_fields)
        wanted = options.send_cache_key
        self.takes_cache_key = self.official or bool(self.session_header) if wanted is None else wanted
        self._needs_done = options.stream_end == "done" or (options.stream_end == "auto" and self.official)

    def can_send_cache_key(self, key: str) -> bool:
        return not self.session_header or is_header_text(key)

    def cache_marks(self, request: ChatRequest, target: Target) -> frozenset[str]:
        return taken(request, target, self.marks)

    def accepted_fields(self, dialect: str, target: Target) -> AcceptedFields | None:
        if dialect == COMPLETIONS:
            return self._accepted_completions(target)
        return self._responses if dialect == RESPONSES else None

    def _accepted_completions(self, target: Target) -> AcceptedFields | None:
        if self.official and self.options.completions is None and is_completions_model(target.model):
            return ALL
        return self._completions

    def prefill(self, target: Target) -> str:
        if self.official:
            return "none"
        beta = self.quirks.beta_prefill
        return beta if beta is not None and self.base_url.endswith("/beta") else self.quirks.prefill

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        native = request.native
        if native is not None and self._is_native(native):
            body = responses_body(request, target, stream=False)
            if native.compacts == "document":
                body = compaction_body(body)
                return read_compaction(await self.post_whole("/responses/compact", body, target), self.hidden)
            return read_response(await self.post_whole("/responses", body, target), self.hidden)
        if native is not None and self._is_completion(native, target):
            body = completions_body(request, native, target, self.quirks, stream=False)
            whole = await self.post_whole(PATH, body, target)
            return await read_texts(whole, self.hidden, is_counted=self._is_counted(request))
        answer = await self._send(request, target, stream=False)
        try:
            body = await answer.read()
        finally:
            answer.close()
        if body[:1] == b"{" or not is_event_stream(body):
            return read_completion(body, self.hidden)
        return await folded(chunks_of(body, self.hidden))

    def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream; usage is always asked for."""
        lane = TextLane()
        native = request.native
        if native is not None and self._is_native(native):
            return LanedStream(self._native_events(request, target, lane), lane)
        if native is not None and self._is_completion(native, target):
            return self._texts(request, native, target)
        return LanedStream(self._chunks(request, target, lane), lane)

    async def _texts(self, request: ChatRequest, asked: NativeRequest, target: Target) -> AsyncGenerator[ChatChunk]:
        body = completions_body(request, asked, target, self.quirks, stream=True)
        answer = await self.post(PATH, body, target)
        counted = self._is_counted(request)
        async for chunk in read_text_stream(answer, self.hidden, needs_done=self._needs_done, is_counted=counted):
            yield chunk

    def _is_counted(self, request: ChatRequest) -> bool:
        """Whether the server's usage is that of all texts of a completion."""
        return request.choices == 1 or self.preset not in COUNT_ONE

    async def _chunks(self, request: ChatRequest, target: Target, lane: TextLane) -> AsyncGenerator[ChatChunk]:
        async with await self._send(request, target, stream=True) as answer:
            reader, text_events = ChunkReader(self.hidden), TextEvents(lane, read_text)
            if answer.headers.get("Content-Type", "").startswith("application/json"):
                yield reader.read_whole(await answer.read())  # an error, or a server that does not stream
                return
            while events := await answer.read_events(text_events.takes):
                for event in events:
                    if event.data == DONE_DATA:
                        answer.release()
                        if (last := reader.end()) is not None:
                            yield last
                        return
                    chunk = reader.read(event)
                    if chunk is not None:
                        text_events.set_template(event, chunk)
                        yield chunk
                del events, event, chunk  # nothing is kept while the upstream is silent
            if self._needs_done or not reader.finished:
                raise_unnamed_error(answer.stray, self.hidden)
                raise UpstreamTruncated()
            if (last := reader.end()) is not None:
                yield last

    async def _native_events(self, request: ChatRequest, target: Target, lane: TextLane) -> AsyncGenerator[ChatChunk]:
        body = responses_body(request, target, stream=True)
        answer = await self.post("/responses", body, target)
        async for chunk in read_responses(answer, self.hidden, lane):
            yield chunk

    def _is_native(self, native: NativeRequest) -> bool:
        """Whether the server has the dialect in which the request was sent."""
        return self._responses is not None and native.dialect == RESPONSES

    def _is_completion(self, native: NativeRequest, target: Target) -> bool:
        """Whether a completion was sent, and the server has them for this target."""
        return native.dialect == COMPLETIONS and self._accepted_completions(target) is not None

    def _send(self, request: ChatRequest, target: Target, *, stream: bool) -> Awaitable[Answer]:
        limit_field = self.limit_field if request.native is not None else ""  # the caller has named neither field
        session = ""
        if self.session_header and CACHE_KEY in request.fields:
            without_key, session = without_cache_key(request)
            request = request if self.quirks.keeps_cache_key else without_key
        body = chat_body(request, target, self.quirks, stream=stream, limit_field=limit_field, marks=self.marks)
        return self.post("/chat/completions", body, target, session=session)


def chunks_of(body: bytes, hidden: Sequence[str] = ()) -> Iterator[ChatChunk]:
    """The chunks in the body of a stream that came whole; UpstreamTruncated if it has no end."""
    reader = ChunkReader(hidden)
    for event in events_of(body):
        if event.data == DONE_DATA:
            break
        chunk = reader.read(event)
        if chunk is not None:
            yield chunk
    else:
        if not reader.finished:
            raise UpstreamTruncated()
    if (last := reader.end()) is not None:
        yield last

"""Chat at OpenAI-compatible servers: one JSON answer, or the chunks of one event stream.

Sharp edge: whether an end of stream without `[DONE]` counts as complete depends on `stream_end`; "auto" demands the
marker of api.openai.com only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable

from gateway import Answer, Chat, ChatChunk, ChatCompletion, ChatRequest, LanedStream, Target, TextLane, Upstream
from gateway.errors import UpstreamTruncated
from gateway.sse import DONE_DATA

from .chunks import ChunkReader, read_completion
from .request import chat_body
from .server import OpenAIServer, SharedOptions


class OpenAIChat(OpenAIServer, Chat):
    """`POST /chat/completions`."""

    def __init__(self, options: SharedOptions, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self.chat_fields = self.quirks.chat_fields  # type: ignore[misc]  # by the server, not by the class
        if self.official:
            self.limit_field = "max_completion_tokens"  # its reasoning models refuse max_tokens
        self._needs_done = options.stream_end == "done" or (options.stream_end == "auto" and self.official)

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        answer = await self._send(request, target, stream=False)
        try:
            return read_completion(await answer.read(), self.hidden)
        finally:
            answer.close()

    def stream_chat(self, request: ChatRequest, target: Target) -> LanedStream:
        """The chunks of one event stream; usage is always asked for."""
        lane = TextLane()
        return LanedStream(self._chunks(request, target, lane), lane)

    async def _chunks(self, request: ChatRequest, target: Target, lane: TextLane) -> AsyncGenerator[ChatChunk]:
        async with await self._send(request, target, stream=True) as answer:
            reader = ChunkReader(self.hidden, lane)
            if answer.headers.get("Content-Type", "").startswith("application/json"):
                yield reader.read_whole(await answer.read())  # an error, or a server that does not stream
                return
            while events := await answer.read_events(reader.goes_past):
                for event in events:
                    if event.data == DONE_DATA:
                        answer.release()
                        return
                    chunk = reader.read(event)
                    if chunk is not None:
                        yield chunk
                del events, event, chunk  # nothing is kept while the upstream is silent
            if self._needs_done or not reader.finished:
                raise UpstreamTruncated()

    def _send(self, request: ChatRequest, target: Target, *, stream: bool) -> Awaitable[Answer]:
        return self.post("/chat/completions", chat_body(request, target, self.quirks, stream=stream), target)

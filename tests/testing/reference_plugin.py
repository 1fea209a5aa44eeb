"""A complete chat plugin of a third party without fault, and its vendor; `mutants` breaks it in twelve ways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from gateway import (
    Answer,
    Chat,
    ChatChunk,
    ChatRequest,
    CompletionUsage,
    ImagePart,
    Provider,
    Secret,
    Target,
    TextPart,
    UserMessage,
    raise_for_status,
)
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.testing import Reply, Seen

KEY = "sk-of-the-reference-0123456789"
OPTIONS = {"address": "{upstream}", "api_key": Secret("literal", KEY)}
REASONS = {"done": "stop", "paper": "length", "censor": "content_filter"}


class Line(Struct):
    """One line of an answer; the last one has the reason of the end, and the counts."""

    text: str = ""
    ended: str | None = None
    counted: tuple[int, int] | None = None


def vendor(seen: Seen, ended: str = "done") -> Reply:
    """Repeats the last turn word by word."""
    words = str(seen.json["turns"][-1]).split()
    end = {"ended": ended, "counted": (len(words) + 2, len(words))}
    return Reply.lines([*({"text": f"{word} "} for word in words), end])


class Reference(Provider, Chat):
    """Speaks the vendor's dialect."""

    name = "reference"
    chat_fields: ClassVar[frozenset[str] | None] = frozenset({"temperature", "stop", "image_url"})
    media_type = "application/json"

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys under [providers.NAME]."""

        address: str
        api_key: Secret

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        async with await self.send(request, target) as answer:
            async for data in answer.lines():
                line = self.line(data)
                if line.ended is None:
                    yield self.text(line.text)
                    continue
                answer.release()
                for chunk in self.end(line):
                    yield chunk
                return
            raise UpstreamTruncated()

    async def send(self, request: ChatRequest, target: Target) -> Answer:
        key = self.options.api_key.reveal()
        answer = await self.upstream.send(
            "POST",
            f"{self.options.address}/say",
            headers={"Content-Type": self.media_type, "Authorization": f"Bearer {key}"},
            body=msgspec.json.encode(self.body(request, target)),
            timeouts=target.timeouts,
        )
        try:
            await raise_for_status(answer, hidden=[key])
        except BaseException:
            answer.close()
            raise
        return answer

    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        parts = [part for one in request.messages if isinstance(one, UserMessage) for part in one.content]
        return {
            "model": target.model,
            "turns": [words_of(message.content) for message in request.messages],
            "images": [part.image_url.url for part in parts if isinstance(part, ImagePart)],
            "limit": request.max_output,
            "temperature": request.temperature,
            "stop": request.stop,
        }

    def line(self, data: bytes) -> Line:
        try:
            return msgspec.json.decode(data, type=Line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise UpstreamInvalidResponse() from None

    def text(self, text: str) -> ChatChunk:
        return ChatChunk.text(text)

    def end(self, line: Line) -> list[ChatChunk]:
        chunks = [ChatChunk.finish(REASONS.get(line.ended or "", "stop"))]
        if line.counted is not None:
            chunks.append(ChatChunk.with_usage(CompletionUsage(*line.counted, sum(line.counted))))
        return chunks


def words_of(content: Any) -> str:
    """The text of a message, whose content may be a list of parts."""
    if isinstance(content, str):
        return content
    return " ".join(part.text for part in content if isinstance(part, TextPart))

"""Chat answers of a scriptable upstream in OpenAI's dialect: what it delivers, what it counts, and how it ends.

::

    upstream.enqueue(ChatScript(text="one two", hidden_reasoning=500).stream())
    upstream.answer = ChatScript(usage={"prompt_tokens": 1, "completion_tokens": 999_000}).answer

`usage` replaces the right counts by a lie; None sends none. `early` sends the prompt's counts before any content,
`continuous` sends the counts so far with every chunk.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Literal

from msgspec import Struct

from gateway.testing.openai_dialect import PIXEL
from gateway.testing.reply import Reply, Seen

PCM_RATE = 48_000  # bytes a second of streamed audio
AUDIO_PER_SECOND = 20  # tokens
PER_IMAGE = 1290  # tokens


class ChatScript(Struct, frozen=True, kw_only=True):
    """One answer. Each word is one token."""

    text: str = "one two three"
    prompt_tokens: int = 8
    cached_tokens: int = 0  # part of the prompt
    hidden_reasoning: int = 0  # tokens that are counted and never sent
    custom_input: str = ""  # of a call of a custom tool
    audio_seconds: int = 0  # of audio, a chunk for each second
    images: int = 0
    usage: Any = "right"
    early: bool = False
    continuous: bool = False
    end: Literal["whole", "cut", "silence"] = "whole"
    until: Literal["usage", "finish", "content", "nothing"] = "usage"  # the last thing that is sent before the end

    def answer(self, seen: Seen) -> Reply:
        """The answer to any chat request, whole or streamed; for `FakeUpstream.answer`."""
        return self.stream() if seen.json.get("stream") else self.whole()

    def stream(self, *, interval: float = 0.0) -> Reply:
        """The event stream; `interval` is in seconds."""
        chunks: list[dict[str, Any]] = [_chunk({"role": "assistant", "content": ""})]
        if self.early:
            chunks.append(self._counted({**_chunk(), "choices": []}, 0))
        if self.until != "nothing":
            chunks += self._content()
        if self.until in ("usage", "finish"):
            chunks.append(_chunk(finish="stop"))
        if self.until == "usage" and self.usage is not None:
            chunks.append({**_chunk(), "choices": [], "usage": self._right() if self.usage == "right" else self.usage})
        reply = Reply.stream(chunks, done=self.end == "whole", interval=interval)
        reply.end = self.end
        return reply

    def whole(self) -> Reply:
        """The JSON document."""
        message = {"role": "assistant", "content": self.text, **_first(self._media())}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = self._right() if self.usage == "right" else self.usage
        return Reply.json({"object": "chat.completion", "choices": [choice], "usage": usage})

    def _content(self) -> list[dict[str, Any]]:
        words = [f"{word} " for word in self.text.split()]
        deltas = [{"content": word} for word in words]
        if self.custom_input:
            call = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "run", "input": self.custom_input}}
            deltas.append({"tool_calls": [call]})  # type: ignore[dict-item]
        chunks = [_chunk(delta) for delta in [*deltas, *self._media()]]
        if self.continuous:
            chunks = [self._counted(chunk, done) for done, chunk in enumerate(chunks, 1)]
        return chunks

    def _media(self) -> list[dict[str, Any]]:
        second = b64encode(bytes(PCM_RATE)).decode()
        url = f"data:image/png;base64,{PIXEL}"
        parts: list[dict[str, Any]] = [{"audio": {"id": "audio_1", "data": second}} for _ in range(self.audio_seconds)]
        parts += [{"images": [{"type": "image_url", "image_url": {"url": url}}]} for _ in range(self.images)]
        return parts

    def _right(self) -> dict[str, Any]:
        audio = self.audio_seconds * AUDIO_PER_SECOND
        visible = len(self.text.split()) + len(self.custom_input.split()) + audio + self.images * PER_IMAGE
        return self._usage(visible + self.hidden_reasoning, reasoning_tokens=self.hidden_reasoning, audio_tokens=audio)

    def _counted(self, chunk: dict[str, Any], tokens: int) -> dict[str, Any]:
        return {**chunk, "usage": self._usage(tokens)}

    def _usage(self, completion: int, **details: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": details,
        }


def _chunk(delta: dict[str, Any] | None = None, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [choice]}


def _first(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return parts[0] if parts else {}

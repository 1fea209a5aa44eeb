"""FakeUpstream in a thread, for clients that block: the scenes that LiteLLM's mocks cannot play.

Those mocks stream no tool calls, know no reasoning text, log probabilities or several choices, do not fail half-way,
and keep no log of who left. `enqueue` scripts the next answers; `seen` and `ended` are the truth about what arrived.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from gateway.testing import FakeUpstream, Reply, Seen
from gateway.testing.openai_dialect import PIXEL, openai_dialect

T = TypeVar("T")


class ScriptedUpstream:
    """A FakeUpstream that serves on a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._replies: deque[Reply] = deque()
        self._server = FakeUpstream(self._answer)

    @property
    def base_url(self) -> str:
        """Its address."""
        return self._server.base_url

    @property
    def seen(self) -> list[Seen]:
        """What reached it since `forget`."""
        return self._server.seen

    def enqueue(self, *replies: Reply) -> None:
        """Answer the next requests with these, in order."""
        self._replies.extend(replies)

    def ended(self, position: int = -1) -> Seen:
        """A request whose answer has ended one way or the other; waits for that."""
        return self._run(self._server.wait_ended(position))

    def forget(self) -> None:
        """Empty the log, and drop answers that nobody fetched."""
        self._replies.clear()
        self._server.seen.clear()

    def _answer(self, seen: Seen) -> Reply:
        return self._replies.popleft() if self._replies else openai_dialect(seen)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @contextmanager
    def serving(self) -> Iterator[ScriptedUpstream]:
        """Serve within the context."""
        self._thread.start()
        self._run(self._server.start())
        try:
            yield self
        finally:
            self._run(self._server.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **choice: Any) -> dict[str, Any]:
    """A chunk of a stream with one choice."""
    fields = {"index": 0, "delta": delta or {}, "finish_reason": finish, **choice}
    return {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [fields]}


def completion(*messages: dict[str, Any], finish: str = "stop", **choice: Any) -> dict[str, Any]:
    """A whole answer, a choice for each message."""
    choices = [
        {"index": index, "message": {"role": "assistant", **message}, "finish_reason": finish, **choice}
        for index, message in enumerate(messages)
    ]
    return {"id": "up", "object": "chat.completion", "created": 1, "model": "up", "choices": choices, "usage": USAGE}


USAGE = {"prompt_tokens": 17, "completion_tokens": 9, "total_tokens": 26}
USAGE_CHUNK = {
    "id": "up",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "up",
    "choices": [],
    "usage": USAGE,
}
TEXT = [chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"})]
TEXT_STREAM = Reply.stream([*TEXT, chunk(finish="stop"), USAGE_CHUNK])
TIDE_CALL = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"port": "Brest"}'}}
TIDE_ANSWER = completion({"content": None, "tool_calls": [TIDE_CALL]}, finish="tool_calls")


def _call(index: int, **fragment: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": index, **fragment}]})


TIDE_STREAM = Reply.stream(
    [
        chunk({"role": "assistant", "content": None}),
        _call(0, id="call_1", type="function", function={"name": "tide", "arguments": ""}),
        _call(0, function={"arguments": '{"port":'}),
        _call(0, function={"arguments": ' "Brest"}'}),
        _call(1, id="call_2", type="function", function={"name": "tide", "arguments": '{"port": "Cork"}'}),
        chunk(finish="tool_calls"),
        USAGE_CHUNK,
    ]
)
BROKEN_STREAM = Reply.stream([*TEXT, {"error": {"message": "the engine stalled", "type": "server_error"}}], done=False)
SILENT_STREAM = Reply(
    headers={"Content-Type": "text/event-stream"}, frames=Reply.stream(list(TEXT), done=False).frames, end="silence"
)


def image_event(kind: str = "completed", **fields: Any) -> bytes:
    """An event of a stream of images."""
    data = {"type": f"image_generation.{kind}", "b64_json": PIXEL, "created_at": 1, **fields}
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), msgspec.json.encode(data))


#: One image of two, and a clean end.
BROKEN_IMAGES = Reply(headers={"Content-Type": "text/event-stream"}, frames=[image_event()])


def text_chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    """An upstream's chunk."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "up", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}


#: A stream that the upstream cuts.
BROKEN_TEXTS = [text_chunk("High tide "), text_chunk("at six")]

"""The reference plugin with one fault each: what an author may get wrong without noticing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from gateway import Answer, ChatChunk, ChatRequest, Target
from tests.delays import loop_is_held_for
from tests.polling import turns
from tests.testing.reference_plugin import Line, Reference


class MixesAnswers(Reference):
    """Keeps the request of a call in the instance while another call may begin."""

    request: ChatRequest

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        self.request = request
        await turns()
        async for chunk in super().stream_chat(self.request, target):
            yield chunk


class IgnoresTheLimit(Reference):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        return super().body(request, target) | {"limit": None}


class IgnoresTheModel(Reference):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        return super().body(request, target) | {"model": target.public_model}


class AlwaysStops(Reference):
    def end(self, line: Line) -> list[ChatChunk]:
        return [ChatChunk.finish("stop"), *super().end(line)[1:]]


class DropsUsage(Reference):
    def end(self, line: Line) -> list[ChatChunk]:
        return super().end(line)[:1]


class CountsNothing(Reference):
    def end(self, line: Line) -> list[ChatChunk]:
        line.counted = (0, 0)
        return super().end(line)


class SleepsPerChunk(Reference):
    def text(self, text: str) -> ChatChunk:
        loop_is_held_for(0.05)
        return super().text(text)


class ComputesPerChunk(Reference):
    def text(self, text: str) -> ChatChunk:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        return super().text(text)


class AnswersACancelledCall(Reference):
    """Takes a cancellation for the end of the vendor."""

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        try:
            async for chunk in super().stream_chat(request, target):
                yield chunk
        except asyncio.CancelledError:
            yield ChatChunk.text("sorry")
            yield ChatChunk.finish("stop")


class EndsACancelledCall(Reference):
    """Has a stream that a cancellation merely ends."""

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        try:
            async for chunk in super().stream_chat(request, target):
                yield chunk
        except asyncio.CancelledError:
            return


class KeepsAnswersOpen(Reference):
    """Never closes an answer."""

    def __init__(self, options: Any, upstream: Any) -> None:
        super().__init__(options, upstream)
        self.answers: list[Answer] = []

    async def send(self, request: ChatRequest, target: Target) -> Answer:
        answer = await super().send(request, target)
        self.answers.append(answer)
        return cast("Answer", Unclosed(answer))


class Unclosed:
    """An answer that no end of a call closes."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def __aenter__(self) -> Unclosed:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def lines(self) -> Any:
        return self.answer.lines()

    def release(self) -> None:
        pass


class KeepsItsSessionOpen(Reference):
    """Has a session of its own, which `close` forgets."""

    session: ClassVar[list[socket.socket]] = []  # for the test to close

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        if not self.session:
            address = urlsplit(self.options.address)
            self.session.append(socket.create_connection((address.hostname, address.port)))
        async for chunk in super().stream_chat(request, target):
            yield chunk


class OpensAConnectionPerCall(Reference):
    """Closes its connections with the instance, and not with the call."""

    def __init__(self, options: Any, upstream: Any) -> None:
        super().__init__(options, upstream)
        self.writers: list[asyncio.StreamWriter] = []

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        address = urlsplit(self.options.address)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        self.writers.append(writer)
        async for chunk in super().stream_chat(request, target):
            yield chunk


class SaysOctets(Reference):
    media_type = "application/octet-stream"


class CallsAPngAJpeg(Reference):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        body = super().body(request, target)
        return body | {"images": [url.replace("image/png", "image/jpeg") for url in body["images"]]}


class IgnoresTemperature(Reference):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        return super().body(request, target) | {"temperature": None}


class DeclaresEverything(Reference):
    chat_fields = None


class TalksAfterTheEnd(Reference):
    def end(self, line: Line) -> list[ChatChunk]:
        return [*super().end(line), ChatChunk.text("by the way")]


class ThinksAfterTheEnd(Reference):
    def end(self, line: Line) -> list[ChatChunk]:
        return [*super().end(line), ChatChunk.reasoning("was that right?")]


class YieldsNone(Reference):
    def end(self, line: Line) -> list[ChatChunk]:
        return [ChatChunk.text(cast("str", None)), *super().end(line)]


class YieldsBytes(Reference):
    def text(self, text: str) -> ChatChunk:
        return ChatChunk.text(cast("str", text.encode()))

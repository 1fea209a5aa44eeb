"""Provider plugins that do everything a provider must not, one class each; `secret` is text nobody may ever see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any, ClassVar

from gateway import Chat, ChatChunk, ChatRequest, ChunkChoice, CompletionUsage, Delta, Provider, Target, hookimpl
from gateway.plugins.loader import PluginReport, Plugins
from tests.delays import loop_is_held_for, provider_takes

SECRET = "poisoned-canary-8c1f"  # in no shape that a pattern would know


class Doom(BaseException):
    """Not even an Exception."""


class Poison(Provider, Chat):
    """Base of them all: says "fine" and stops, unless a subclass does worse."""

    name = "poison"
    chat_fields = None
    stopped: ClassVar[list[str]] = []  # names of providers whose stream ended

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__.lower()

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[Any]:
        try:
            async for chunk in self.poison(request):
                yield chunk
        finally:
            self.stopped.append(self.name)

    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("fine")
        yield ChatChunk.finish("stop")


class Healthy(Poison):
    """The one that others must not hurt."""


class RaisesFirst(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        raise RuntimeError(SECRET)
        yield  # type: ignore[unreachable]


class RaisesLater(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("half ")
        raise KeyError(SECRET)


class ExitsFirst(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        raise SystemExit(SECRET)
        yield  # type: ignore[unreachable]


class ExitsLater(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("half ")
        raise SystemExit(SECRET)


class DoomsFirst(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        raise Doom(SECRET)
        yield  # type: ignore[unreachable]


class DoomsLater(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("half ")
        raise Doom(SECRET)


class CancelsItself(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("half ")
        raise asyncio.CancelledError(SECRET)


class YieldsText(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield SECRET


class YieldsNone(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield None


class YieldsDict(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield {"choices": [{"delta": {"content": SECRET}}]}


class YieldsTextLater(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("half ")
        yield SECRET


class YieldsNumbersAsText(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("half ")
        yield ChatChunk.text(42)  # type: ignore[arg-type]


class YieldsUnencodable(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("half ")
        yield ChatChunk(choices=[ChunkChoice(0, Delta(content=object()))])  # type: ignore[arg-type]


class AbsurdIndex(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk(choices=[ChunkChoice(10**12, Delta(content="far"))])


class NegativeIndex(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk(choices=[ChunkChoice(-1, Delta(content="before"))])


class NoFinish(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("half ")


class Nothing(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        nothing: list[ChatChunk] = []
        for chunk in nothing:
            yield chunk


class NotAGenerator(Poison):
    def stream_chat(self, request: ChatRequest, target: Target) -> Any:
        return [ChatChunk.text("no"), ChatChunk.finish("stop")]


class Coroutine(Poison):
    async def stream_chat(self, request: ChatRequest, target: Target) -> Any:  # type: ignore[override]
        return ChatChunk.text("no")


class RaisesAtCall(Poison):
    def stream_chat(self, request: ChatRequest, target: Target) -> Any:
        raise ValueError(SECRET)


class Bare:
    """An async iterator with nothing else, which is all that the interface asks for."""

    def __init__(self) -> None:
        self.chunks = [ChatChunk.text("fine"), ChatChunk.finish("stop")]

    def __aiter__(self) -> Bare:
        return self

    async def __anext__(self) -> ChatChunk:
        if not self.chunks:
            raise StopAsyncIteration
        return self.chunks.pop(0)


class PlainIterator(Poison):
    def stream_chat(self, request: ChatRequest, target: Target) -> Any:
        return Bare()


class NegativeUsage(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("fine")
        yield ChatChunk.finish("stop")
        yield ChatChunk.with_usage(CompletionUsage(prompt_tokens=-(10**9), completion_tokens=-5, total_tokens=-7))


class AbsurdUsage(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("fine")
        yield ChatChunk.finish("stop")
        yield ChatChunk.with_usage(CompletionUsage(prompt_tokens=10**18, completion_tokens=10**18, total_tokens=1))


class WrongUsage(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("fine")
        yield ChatChunk.finish("stop")
        usage = CompletionUsage(prompt_tokens=1.5, completion_tokens="7", total_tokens=None)  # type: ignore[arg-type]
        yield ChatChunk.with_usage(usage)


class NoUsageObject(Poison):
    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("fine")
        yield ChatChunk.finish("stop")
        yield ChatChunk(usage={"prompt_tokens": 1})  # type: ignore[arg-type]


class Endless(Poison):
    """Never ends, but lets others have their turn."""

    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        while True:
            yield ChatChunk.text("on ")
            await provider_takes(0.001)


class EndlessRush(Poison):
    """Never ends, and never waits for anything."""

    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        while True:
            yield ChatChunk.text("on ")


class EndlessNothing(Poison):
    """Never ends, never waits, and has nothing to say after its first word."""

    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        yield ChatChunk.text("on ")
        while True:
            yield ChatChunk()


class Deaf(Poison):
    """Will not be cancelled."""

    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        while True:
            yield ChatChunk.text("on ")
            try:
                await provider_takes(0.01)
            except asyncio.CancelledError:
                continue


class Blocks(Poison):
    """Holds the loop for half a second."""

    async def poison(self, request: ChatRequest) -> AsyncIterator[Any]:
        loop_is_held_for(0.5)
        yield ChatChunk.text("fine")
        yield ChatChunk.finish("stop")


class BadInit(Poison):
    def __init__(self, options: Any, upstream: Any) -> None:
        raise RuntimeError("no")


class ExitsInInit(Poison):
    def __init__(self, options: Any, upstream: Any) -> None:
        raise SystemExit("no")


class BadStart(Poison):
    async def start(self) -> None:
        raise RuntimeError("no")


class DoomedStart(Poison):
    async def start(self) -> None:
        raise Doom("no")


class BadClose(Poison):
    async def close(self) -> None:
        raise RuntimeError(SECRET)


PROVIDERS: list[type[Poison]] = Poison.__subclasses__()


def plugin(name: str, register: Any) -> ModuleType:
    """A module as an entry point would load it."""
    module = ModuleType(name)
    module.register_providers = hookimpl(register)  # type: ignore[attr-defined]
    return module


def load(plugins: Plugins, name: str, find: Any) -> PluginReport:
    """Load one plugin; its report."""
    report = PluginReport(name=name, version="0", source="test")
    plugins.load(report, find)
    return report


def load_all(plugins: Plugins) -> None:
    """Every poisoned provider, as one plugin."""

    def register_providers(register: Any) -> None:
        for provider in PROVIDERS:
            register(provider)

    report = load(plugins, "poison", lambda: plugin("poison", register_providers))
    assert report.state == "active", report.reason

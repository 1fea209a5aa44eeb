"""The `check_answer` hooks of a model, for streams: text waits for the end of its sentence, and is checked before it is
sent.

The items of a provider's stream are kept until the text in them ends a sentence, is long enough, or has waited for long
enough. Each hook then sees the new text of each choice and kind; then the items go on as they came. So a hook may
refuse a part of a stream, and not replace it. Checked are text, refusals, reasoning, and the names and arguments of
tools. Not checked is what only an event in the upstream's own words has, and what is no text. Sharp edge: a stream that
is checked has no fast path, and is not continued by another target when it is cut.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from gateway.hooks.runner import PASSED, HookRunner
from gateway.inference.answer_checks import run_check
from gateway.inference.call import STOP_WITHIN, Call
from gateway.inference.services import Services
from gateway.plugins.hook import CheckedAnswer
from gateway.plugins.texts import texts_of
from gateway.routing.dispatcher import Opened
from gateway.schemas.chat_response import ChatChunk, Delta
from gateway.schemas.transcription import TranscriptEvent

BEFORE: Final = 2000  # characters before a part that hooks see
MOST_ITEMS: Final = 4096  # that wait
_SENTENCE_END = re.compile(r"[.!?…。！？\n][\"'”’)\]]*\s*$")
_END: Final = object()

Place = tuple[int, str]  # the choice, and the kind of text
_decode = msgspec.json.Decoder().decode


def stream_hooks(call: Call, services: Services) -> list[HookRunner]:
    """The hooks that check the stream of a call."""
    hooks = services.call_hooks.of("check_answer", call.model.hooks)
    return [runner for runner in hooks if runner.settings.streams == "sentences"]


class CheckedStream:
    """The items of one stream, of which those with text were checked."""

    def __init__(self, call: Call, opened: Opened[Any], runners: Sequence[HookRunner], services: Services) -> None:
        self._call, self._candidate, self._source = call, opened.candidate, opened.rest
        self._runners, self._services = runners, services
        self._delay = min(runner.settings.stream_delay for runner in runners)
        self._length = min(runner.settings.stream_length for runner in runners)
        self._first = opened.first
        self._items: list[Any] = []  # that wait
        self._texts: dict[Place, str] = {}  # that wait, of these items
        self._before: dict[Place, str] = {}
        self._due = 0.0  # when the texts have waited for long enough

    async def items(self) -> AsyncIterator[Any]:
        """The items of the stream."""
        reading: asyncio.Future[Any] | None = None
        item: Any = self._first
        self._first = None
        try:
            while item is not _END:
                if self._keep(item):
                    for kept in await self._checked():
                        yield kept
                reading = asyncio.ensure_future(_next(self._source))
                while not await _is_done(reading, self._due):
                    for kept in await self._checked():
                        yield kept
                item, reading = reading.result(), None
            for kept in await self._checked():
                yield kept
        finally:
            if reading is not None:
                await self._left(reading)

    def _keep(self, item: Any) -> bool:
        """Keep an item; whether what is kept is to be checked and sent."""
        self._items.append(item)
        is_end = False
        for place, text in _texts(item):
            if not self._texts:
                self._due = time.monotonic() + self._delay
            found = self._texts[place] = self._texts.get(place, "") + text
            is_end = is_end or _SENTENCE_END.search(found[-64:]) is not None or len(found) >= self._length
        return is_end or not self._texts or len(self._items) >= MOST_ITEMS or _is_finish(item)

    async def _checked(self) -> list[Any]:
        """Check the texts; the items that they belong to."""
        items, texts = self._items, self._texts
        self._items, self._texts, self._due = [], {}, 0.0
        hooked = self._call.hooked
        assert hooked is not None
        for place, text in texts.items():
            before = self._before.get(place, "")
            for runner in self._runners:
                part = CheckedAnswer(lambda text=text: text, is_part=True, kind=place[1], before=before)  # type: ignore[misc]
                await run_check(runner, hooked, part, _passed, call=self._call)
            self._before[place] = (before + text)[-BEFORE:]
        return items

    async def _left(self, reading: asyncio.Future[Any]) -> None:
        """The stream ends while its provider is asked for an item."""
        reading.cancel()
        await asyncio.wait((reading,), timeout=STOP_WITHIN)
        if not reading.done():
            assert isinstance(reading, asyncio.Task)
            self._services.dispatcher.stuck.watch(reading, self._candidate.circuit)
        elif not reading.cancelled():
            reading.exception()


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source, _END)


async def _is_done(reading: asyncio.Future[Any], due: float) -> bool:
    """Wait for an item, at most until the texts are due; 0: as long as it takes."""
    await asyncio.wait((reading,), timeout=max(0.0, due - time.monotonic()) if due else None)
    return reading.done()


def _passed(found: Any) -> tuple[None, str]:
    if found is not None:
        raise ValueError("a part of a stream cannot be replaced")
    return None, PASSED


def _is_finish(item: Any) -> bool:
    return isinstance(item, ChatChunk) and any(choice.finish_reason is not None for choice in item.choices)


def _texts(item: Any) -> Iterator[tuple[Place, str]]:
    if isinstance(item, ChatChunk):
        for choice in item.choices:
            yield from (((choice.index, kind), text) for kind, text in _of_delta(choice.delta) if text)
    elif isinstance(item, TranscriptEvent):
        text = item.delta or (item.done.text if item.done is not None else "")
        if text:
            yield (0, "text"), text


def _of_delta(delta: Delta) -> Iterator[tuple[str, str]]:
    for text in (delta.content, delta.refusal):
        if isinstance(text, str):
            yield "text", text
    if isinstance(delta.reasoning_content, str):
        yield "reasoning", delta.reasoning_content
    else:
        for raw in (delta.reasoning_details, delta.thinking_blocks):
            if isinstance(raw, Raw):
                yield "reasoning", " ".join(texts_of(_decode(raw)))
    if isinstance(delta.audio, Raw):
        yield "text", " ".join(texts_of(_decode(delta.audio)))
    functions = [delta.function_call]
    for call in delta.tool_calls or ():
        functions.append(call.function)
        if call.custom is not UNSET and call.custom is not None:
            yield "tool", (call.custom.name or "") + (call.custom.input or "")
    for function in functions:
        if function is not UNSET and function is not None:
            yield "tool", (function.name or "") + (function.arguments or "")

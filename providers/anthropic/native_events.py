"""The events of a Messages stream with what they mean to the gateway: each is passed on as it came, and counted.

Sharp edge: events before the first content wait for it, so that an error before it can still be answered by another
target.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, structs

from gateway import ChatChunk, ChatCompletion, Event, NativeChunk, NativeCompletion
from gateway.sse import LF

from .._shared.documents import UNREADABLE
from .._shared.whole_events import Document, PlacedText, WholeEvents
from .answer import read_completion, read_usage
from .events import EventReader

#: Events that are passed on; a client of the dialect knows no others.
NAMES = frozenset({
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "message_stop", "ping",
})  # fmt: skip

#: The member of a delta that has its text, by the delta's type.
TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class _Typed(msgspec.Struct):
    type: str = ""


_type = msgspec.json.Decoder(_Typed)


class NativeReader:
    """Reads the events of one stream."""

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self._reader = EventReader(hidden)
        self._waiting: list[NativeChunk] | None = []  # None after the first content
        self._whole: WholeEvents | None = None  # while a high surrogate waits for its low surrogate

    @property
    def complete(self) -> bool:
        """Whether the last event was read."""
        return self._reader.complete

    def read(self, event: Event) -> list[NativeChunk]:
        """The chunks to send now; an error event is raised."""
        name = self._name(event)
        if name is not None and self._whole is None:
            return self._read(event, name)
        self._whole = whole = self._whole or WholeEvents(_texts_of, _alone)
        found = [native for one in whole.read(event) for native in self._read(one, self._name(one))]
        if not whole.are_waiting:
            self._whole = None
        return found

    def _read(self, event: Event, name: str | None) -> list[NativeChunk]:
        chunk = self._reader.read(event)
        native = self._native(event, chunk, name)
        waiting = self._waiting
        if waiting is None:
            return [] if native is None else [native]
        if native is not None:
            waiting.append(native)
        if chunk is None and not self.complete:
            return []
        self._waiting = None
        return waiting

    def _name(self, event: Event) -> str | None:
        """The type of an event; None for one that cannot be read, such as one with a lone surrogate."""
        try:
            return _type.decode(event.data).type
        except UNREADABLE:
            return None

    def _native(self, event: Event, chunk: ChatChunk | None, name: str | None) -> NativeChunk | None:
        if name is None or name not in NAMES:
            return None
        data = event.data if LF not in event.data else msgspec.json.format(event.data, indent=-1)
        native = NativeChunk(event=data, name=name)
        if chunk is not None:
            native.choices, native.usage, native.service_tier = chunk.choices, chunk.usage, chunk.service_tier
        elif name == "message_start":
            native.usage = read_usage(self._reader.usage) or UNSET
        return native


def _texts_of(document: Document) -> list[PlacedText]:
    """The text of a delta, which goes on in the next delta of its block."""
    delta = document.get("delta")
    if document.get("type") != "content_block_delta" or not isinstance(delta, dict):
        return []
    name = TEXTS.get(str(delta.get("type")), "")
    if not isinstance(delta.get(name), str):
        return []
    return [PlacedText((str(document.get("index")), name), delta, name)]


def _alone(document: Document, text: PlacedText) -> Document:
    return {**document, "delta": text.holder}


def read_native_completion(body: bytes, hidden: Sequence[str] = ()) -> NativeCompletion:
    """The answer in a JSON body, and the body; an error that rides in it is raised."""
    answer: ChatCompletion = read_completion(body, hidden)
    return NativeCompletion(**structs.asdict(answer), document=body)

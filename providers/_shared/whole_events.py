"""Events that the gateway passes on as they came, with whole characters only.

A client of the dialect reads each event by itself, and many JSON readers refuse a lone surrogate. So an event that
a decoder refuses is read by `WholeEvents`, which joins the pairs of one text over events, and writes it anew.
Sharp edge: while a high surrogate waits, all events must pass through here; one that stays alone becomes an event.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from msgspec import Struct, structs

from gateway import Event
from gateway.schemas.answer_surrogates import LONE, WaitingSurrogates, encode_whole

from .documents import UNREADABLE
from .fitting import read_json

Document = dict[str, Any]


class PlacedText(Struct):
    """A text that goes on in later events."""

    place: Hashable  # the same for all events of one text
    holder: Document  # the object that has it as a member
    name: str  # of the member
    ends: bool = False  # nothing follows this piece
    owner: Any = None  # what `WriteAlone` needs beside it


#: The texts of an event's document in their order.
FindTexts = Callable[[Document], list[PlacedText]]
#: The document of an event like the given one that has this text alone.
WriteAlone = Callable[[Document, PlacedText], Document]


class WholeEvents:
    """Reads the events of one stream that a decoder refuses, and those that follow while a high surrogate waits."""

    __slots__ = ("_alone", "_find", "_waiting", "_write")

    def __init__(self, find: FindTexts, write: WriteAlone) -> None:
        self._find, self._write = find, write
        self._waiting = WaitingSurrogates()
        self._alone: dict[Hashable, Event] = {}  # for each one that waits, the event of U+FFFD in its place

    @property
    def are_waiting(self) -> bool:
        """Whether a high surrogate waits for its low surrogate."""
        return bool(self._waiting)

    def read(self, event: Event) -> list[Event]:
        """The events in place of `event`, which itself is returned if it is no JSON object."""
        try:
            document = read_json(event.data, surrogates=True)
        except UNREADABLE:
            return [event]
        if not isinstance(document, dict) or document.get("type") == "ping":
            return [event]
        texts = self._find(document)
        goes_on = {text.place for text in texts}
        events = []
        for place in self._waiting.places:
            if place not in goes_on:
                self._waiting.give_up(place)
                events.append(self._alone.pop(place))
        for text in texts:
            self._join(event, document, text)
        return [*events, structs.replace(event, data=encode_whole(document))]

    def _join(self, event: Event, document: Document, text: PlacedText) -> None:
        holder, name, place = text.holder, text.name, text.place
        joined = self._waiting.join(place, holder[name])
        self._alone.pop(place, None)
        if text.ends:
            joined += self._waiting.give_up(place)
        elif place in self._waiting.places:
            alone = self._write(document, structs.replace(text, holder={**holder, name: LONE}))
            self._alone[place] = structs.replace(event, data=encode_whole(alone))
        holder[name] = joined

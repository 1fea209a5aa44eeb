"""What a socket keeps between two requests, and the body of HTTP that an event of it stands for.

`Conversation` has the items of the last response and of all that it followed. The next request names that response and
sends new items only. It is in memory, belongs to one socket, ends with it, and is bounded: for the socket, its account
and the worker. Without room it is forgotten, and the client must send the whole input again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.errors import ConcurrencyLimited, InvalidJSON, InvalidValue, NotFound, Overloaded, UnsupportedValue
from gateway.schemas.responses.compaction import COMPACTION
from gateway.uploads.budget import Share

CREATE = "response.create"
#: Fields of an event that a body of HTTP does not have, or that are always the same here.
OWN = ("type", "generate", "stream", "previous_response_id")

_table = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode


class Opening(Struct):
    """The fields of an event that are read before all others."""

    type: Any = None
    generate: Any = None
    previous_response_id: Any = None


class _Item(Struct):
    type: Any = None
    encrypted_content: Any = None


class _Response(Struct):
    id: str
    output: list[Raw] = []


class _Last(Struct):
    response: _Response


_opening = msgspec.json.Decoder(Opening)
_item = msgspec.json.Decoder(_Item)
_last = msgspec.json.Decoder(_Last)


class Event(Struct):
    """A `response.create`, as a body of HTTP."""

    body: bytes
    generate: bool  # False: only prepare
    items: bytes  # of the whole input, JSON without the brackets


class Conversation:
    """The items up to the last response of one socket. `share`: of the memory for them."""

    __slots__ = ("_items", "_most", "_response", "_share")

    def __init__(self, share: Share, most: int) -> None:
        self._share = share
        self._most = most  # bytes
        self._response = ""  # the id of the last one; empty: nothing is kept
        self._items = b""

    def event(self, text: bytes) -> Event:
        """The request in a text of the client; a BadRequest or NotFound says what is wrong with it."""
        try:
            opening = _opening.decode(text)
            fields = _table.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise InvalidJSON("The message is not a JSON object") from None
        if opening.type != CREATE:
            raise UnsupportedValue(f"Unsupported value: 'type'. Only '{CREATE}' is taken here.", param="type")
        if not (opening.generate is None or isinstance(opening.generate, bool)):
            raise InvalidValue("Invalid 'generate': expected a boolean.", param="generate")
        previous = opening.previous_response_id
        for name in OWN:
            fields.pop(name, None)
        items = _items(fields.get("input"))
        if previous is not None:
            if not self._response or previous != self._response:
                raise NotFound(
                    "Previous response not found: only the last one of this connection is kept. Send the whole input.",
                    code="previous_response_not_found",
                    param="previous_response_id",
                )
            if items is not None:
                items = _joined([self._items, items])
                fields["input"] = Raw(b"[%b]" % items)
        fields["stream"] = Raw(b"true")
        return Event(_encode(fields), opening.generate is not False, items or b"")

    def keep(self, items: bytes, response: str, output: Sequence[bytes] = ()) -> None:
        """Keep the items of a request and of its answer, in place of what was kept."""
        self.forget()
        compacted = any(_item.decode(item).type == COMPACTION for item in output)
        whole = _joined(output if compacted else [items, *output])  # a compaction stands for all that was before it
        if len(whole) > self._most:
            return
        try:
            self._share.take(len(whole))
        except (ConcurrencyLimited, Overloaded):
            return
        self._items, self._response = whole, response

    def forget(self) -> None:
        """Keep nothing."""
        self._items, self._response = b"", ""
        self._share.give_back(self._share.size)

    def close(self) -> None:
        """The socket is closed."""
        self.forget()
        self._share.close()


def answer_of(event: bytes) -> tuple[str, list[bytes]]:
    """The id of the response in a last event, and the items of its output that a model reads again."""
    try:
        response = _last.decode(event).response
        return response.id, [bytes(item) for item in response.output if _is_read_again(item)]
    except msgspec.MsgspecError:  # of an upstream of the same dialect, whose events are passed on
        return "", []


def _is_read_again(item: Raw) -> bool:
    """Whether a later request may have the item: reasoning without its content refers to what nobody stored."""
    found = _item.decode(item)
    return found.type != "reasoning" or isinstance(found.encrypted_content, str)


def _items(given: Raw | None) -> bytes | None:
    """The items of an input, JSON without the brackets; None if it is neither a text nor a list."""
    text = bytes(given or b"")
    if text.startswith(b'"'):
        return b'{"type":"message","role":"user","content":%b}' % text
    return text[1:-1].strip() if text.startswith(b"[") else None


def _joined(parts: Sequence[bytes]) -> bytes:
    return b",".join([part for part in parts if part])

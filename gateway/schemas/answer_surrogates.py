r"""Surrogates in answers: JSON may write one of a pair alone (`"\ud83d"`), and UTF-8 cannot carry it.

Servers in JavaScript and Java cut texts by UTF-16 units, so one chunk of a stream ends with a high surrogate and the
next one begins with the low one. msgspec refuses such JSON, also in members that it skips. So its refusal leads to
`read_surrogates`, which keeps surrogates in texts; `whole` joins pairs and makes U+FFFD of a lone one.
`WaitingSurrogates` joins them over the chunks of a stream. Sharp edge: msgspec cannot encode a text with a surrogate.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

T = TypeVar("T")

#: What a lone surrogate becomes.
LONE = "\N{REPLACEMENT CHARACTER}"

_encoder = msgspec.json.Encoder()


def whole(text: str) -> str:
    """`text` with joined pairs; a lone surrogate becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_values(value: Any) -> Any:
    """The same for all texts and names in a value of lists and dicts; anything else is returned as it is."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {whole_values(name): whole_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [whole_values(item) for item in value]
    return value


def ends_in_high_surrogate(text: str) -> bool:
    """Whether the last UTF-16 unit of `text` waits for another one."""
    return bool(text) and "\ud800" <= text[-1] <= "\udbff"


def read_surrogates(data: bytes) -> Any:
    """The document in JSON that a decoder refused; ValueError or RecursionError if it is none.

    Surrogates stay in its texts, bytes that are no UTF-8 become U+FFFD, NaN and infinities become None.
    """
    return json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)


def decode_whole(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """The decoded object, also where `data` has surrogates; raises msgspec's errors otherwise."""
    try:
        return decoder.decode(data)
    except (msgspec.ValidationError, UnicodeDecodeError):
        raise
    except msgspec.DecodeError:
        with suppress(ValueError, RecursionError):  # it is no JSON, and the decoder says why
            data = encode_whole(read_surrogates(data))
        return decoder.decode(data)


def encode_whole(value: Any) -> bytes:
    """`value` as JSON, with whole characters only."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(whole_values(_plain(value)))


def _plain(value: Any) -> Any:
    """`value` as dicts and lists, in which JSON that is encoded already stays as it is."""
    if isinstance(value, Struct):
        return {
            field.encode_name: _plain(found)
            for field in msgspec.structs.fields(value)
            if (found := getattr(value, field.name)) is not msgspec.UNSET
        }
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


class WaitingSurrogates:
    """High surrogates at the end of a chunk's text, each of which waits for the next text of its place."""

    __slots__ = ("_surrogates",)

    def __init__(self) -> None:
        self._surrogates: dict[Hashable, str] = {}

    def __bool__(self) -> bool:
        return bool(self._surrogates)

    @property
    def places(self) -> list[Any]:
        """The places where one waits."""
        return list(self._surrogates)

    def join(self, place: Hashable, text: str) -> str:
        """`text` after the high surrogate that waits at `place`; one at its own end waits."""
        text = self._surrogates.pop(place, "") + text
        if ends_in_high_surrogate(text):
            self._surrogates[place], text = text[-1], text[:-1]
        return whole(text)

    def give_up(self, place: Hashable) -> str:
        """U+FFFD if one waited at `place`: no low surrogate follows; "" otherwise."""
        return LONE if self._surrogates.pop(place, None) is not None else ""

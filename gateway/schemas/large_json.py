"""Examines a large JSON text in pieces, before anything is built of it.

A decoder works on a whole text in one call and holds the interpreter's lock meanwhile, also in a thread. Its time grows
with the number of values: a text of 32 MiB may have sixteen million. So a text over `LARGE` bytes is first read in
pieces, between which other requests run: it may have at most `MOST_VALUES` values and `MOST_OBJECTS` objects, and its
keys are checked in a short form of it, in which long strings are empty.
"""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterator
from typing import Final

import msgspec
from msgspec import Raw

from gateway.errors import InvalidJSON, InvalidValue
from gateway.schemas.duplicate_keys import Examined, key_names
from gateway.schemas.request_surrogates import Replacing

LARGE: Final = 1 << 18  # bytes from which a text is examined
MOST_VALUES: Final = 200_000  # members of objects, items of arrays, and containers
MOST_OBJECTS: Final = 20_000  # as many messages take 3 ms to decode and 2 to quote
PIECE: Final = 65_536  # bytes between two points at which other requests may run
SHORT: Final = 32  # bytes of a string that is kept without a look at what follows
LONGEST_KEY: Final = 1024  # bytes
PART: Final = 32_768  # bytes of the short form whose keys are read at once, where it can be divided
DEEPEST: Final = 4  # levels at which it is divided

# Stand for an escaped backslash and an escaped quote. Both are control characters, which JSON text cannot contain.
_BACKSLASH, _QUOTE = b"\x01\x01", b"\x02\x02"
_SPACE = b" \t\r\n"
_table = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])


def examined(content: bytes) -> Examined:
    """The same in one go, for callers without an event loop to keep free."""
    examination = Examination(content)
    for _ in examination.steps():
        pass
    return examination.result


class Examination:
    """Examines one text: exhaust `steps`, then read `result`."""

    __slots__ = ("_carry", "_content", "_half", "_long", "_objects", "_short", "_values", "result")

    result: Examined

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._carry = b""  # from the last opening quote, or half of an escape
        self._half = b""  # of a character
        self._long = False  # whether the text is inside a string that is too long for a key
        self._short: list[bytes] = []
        self._objects = self._values = 0

    def steps(self) -> Iterator[None]:
        """Each step takes about a millisecond, a few up to 3; raises InvalidJSON or InvalidValue."""
        content = self._content
        for start in range(0, len(content), PIECE):
            piece = content[start : start + PIECE]
            self._check_text(piece, start)
            self._read(piece)
            yield
        self._check_text(b"", len(content))
        short = b"".join([*self._short, self._carry])
        self._short.clear()
        yield
        short = short.replace(_QUOTE, b'\\"').replace(_BACKSLASH, b"\\\\")
        yield
        fields = _fields(content)
        yield
        if fields is None and (mended := (yield from _without_surrogates(content))) is not content:
            content, fields = mended, _fields(mended)
            short = yield from _without_surrogates(short)
        names = set[str]()
        for part in _parts(short, DEEPEST):
            if part:
                names |= key_names(part)
            yield
        self.result = Examined(content, frozenset(names), fields)

    def _check_text(self, piece: bytes, start: int) -> None:
        """Check that one more piece is UTF-8; an empty one is the end."""
        half = self._half
        if half or not piece or not piece.isascii():
            data = half + piece
            try:
                used = codecs.utf_8_decode(data, "strict", not piece)[1]
            except UnicodeDecodeError as error:
                at = start - len(half) + error.start
                raise InvalidJSON(f"The request body is not valid UTF-8 (byte {at}).") from None
            self._half = data[used:]

    def _read(self, piece: bytes) -> None:
        """Read one more piece."""
        if b"\x01" in piece or b"\x02" in piece:
            raise InvalidJSON("The request body is not valid JSON: it has a control character.")
        if self._long and b'"' not in piece and b"\\" not in piece:
            return  # most pieces of an image are such
        data = self._carry + piece
        half = b""
        if data.endswith(b"\\") and (len(data) - len(data.rstrip(b"\\"))) % 2:
            data, half = data[:-1], b"\\"
        if b"\\" in data:
            data = data.replace(b"\\\\", _BACKSLASH).replace(b'\\"', _QUOTE)
        parts = data.split(b'"')
        carry = _open_end(parts)
        self._long = len(carry) > LONGEST_KEY + 1 and not carry.endswith(b'"') and not half
        self._carry = carry + half
        self._count(b"".join(parts[::2]))
        _shorten(parts)
        self._short.append(b'"'.join(parts))

    def _count(self, outside: bytes) -> None:
        """Count the values in text that is outside of strings."""
        objects = outside.count(b"{")
        self._objects += objects
        self._values += outside.count(b",") + outside.count(b"[") + objects
        if self._values > MOST_VALUES:
            raise InvalidValue(f"A request of more than {LARGE} bytes may have at most {MOST_VALUES} values.")
        if self._objects > MOST_OBJECTS:
            raise InvalidValue(f"A request of more than {LARGE} bytes may have at most {MOST_OBJECTS} objects.")


def _fields(content: bytes) -> dict[str, Raw] | None:
    """The top level; None if it cannot be decoded: the decoder of the request names the error."""
    try:
        return _table.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _without_surrogates(text: bytes) -> Generator[None, None, bytes]:
    replacing = Replacing(text)
    yield from replacing.steps()
    return replacing.result


# Parts of a text that was split at its quotes: those at odd positions are strings.


def _open_end(parts: list[bytes]) -> bytes:
    """Remove the last string if it is open, or if what follows it has not arrived, and return its beginning."""
    quote = b""
    if len(parts) % 2:
        if len(parts) == 1 or parts[-1].strip(_SPACE):
            return b""
        parts.pop()
        quote = b'"'
    return b'"' + parts.pop()[: LONGEST_KEY + 1] + quote


def _shorten(parts: list[bytes]) -> None:
    """Empty the long strings that are no keys, and remove long spaces."""
    for at in [at for at, part in enumerate(parts) if len(part) > SHORT]:
        if not at % 2:
            parts[at] = parts[at].translate(None, _SPACE)
        elif parts[at + 1].lstrip(_SPACE)[:1] != b":":
            parts[at] = b""
        elif len(parts[at]) > LONGEST_KEY:
            raise InvalidValue(f"A key in the request is longer than {LONGEST_KEY} bytes.")


def _parts(text: bytes, depth: int) -> Iterator[bytes]:
    """Divide a JSON text into texts that have the same objects and are small where possible.

    A large value of an object is replaced by 0, and divided itself. So a repeated key is still in the rest. An empty
    text is only a point at which other requests may run.
    """
    if b"{" not in text:
        return  # it has no keys; to divide 200,000 numbers takes 10 ms
    if depth == 0 or len(text) <= PART:
        yield text
        return
    try:
        if text[:1] == b"[":
            items = _array.decode(text)
            yield b""
            yield from _parts_of_array(items, depth)
            return
        values = [
            value for value in map(bytes, _table.decode(text).values()) if len(value) > PART and value[0] in b"[{"
        ]
    except (msgspec.MsgspecError, RecursionError):
        values = []  # neither an object nor an array, or invalid
    rest, start = list[bytes](), 0
    for value in values:
        # No string is so long, so this is the value, or an equal one. It may be missing after a repeated key.
        at = text.find(value, start)
        if at < 0:
            break
        rest.append(text[start:at])
        start = at + len(value)
        yield b""
        yield from _parts(value, depth - 1)
    yield b"0".join([*rest, text[start:]])


def _parts_of_array(items: list[Raw], depth: int) -> Iterator[bytes]:
    """Arrays of consecutive small items, and the parts of the large ones."""
    small, size = list[bytes](), 0
    for item in map(bytes, items):
        if len(item) > PART:
            yield from _parts(item, depth - 1)
            continue
        small.append(item)
        size += len(item)
        if size > PART:
            yield b"[%b]" % b",".join(small)
            small, size = [], 0
    yield b"[%b]" % b",".join(small)

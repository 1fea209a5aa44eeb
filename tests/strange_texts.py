r"""Texts that JSON may carry and that a database, a page or UTF-8 may not, and every place of a document for them.

A lone surrogate has no UTF-8, so the texts are JSON strings as bytes: `"\ud83d"` with its quotes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

#: The strings of JSON by name; each is one string of a document.
STRANGE: Mapping[str, bytes] = {
    "first surrogate": rb'"a\ud83d"',
    "second surrogate": rb'"\ude42b"',
    "surrogates in the wrong order": rb'"\ude42\ud83d"',
    "NUL": rb'"a\u0000b"',
    "U+FFFF": '"a\uffffb"'.encode(),
    "marks of direction": '"\u202egnihtyna\u200f"'.encode(),
    "replacement character": '"a\N{REPLACEMENT CHARACTER}"'.encode(),
    "bytes of a surrogate": b'"a\xed\xa0\xbd"',
    "byte that is no UTF-8": b'"a\xff"',
    "spaces of Unicode": '"\u2028\u2029\x85\ufeff"'.encode(),
    "only a surrogate": rb'"\udc00"',
}
#: The texts that no name may have, because two of them would become equal.
LONE = ("first surrogate", "second surrogate", "surrogates in the wrong order", "only a surrogate")
#: 1 MiB of one character: `e` and its accents.
MARKS = b'"e' + "\u0301".encode() * (1 << 19) + b'"'
#: Bytes of a header, a form or an address, which have no escapes.
RAW: Mapping[str, bytes] = {
    "bytes of a surrogate": b"a\xed\xa0\xbd",
    "byte that is no UTF-8": b"a\xff",
    "NUL": b"a\0b",
    "U+FFFF": "a\uffffb".encode(),
    "marks of direction": "\u202egnihtyna\u200f".encode(),
    "spaces of Unicode": "\u2028\x85\ufeff".encode(),
}

_MARK = "strange-text-0a1b2c3d"
_QUOTED = json.dumps(_MARK).encode()
Place = tuple[Any, ...]  # the keys and positions on the way to it; a key itself has None behind it


def places(document: Any, *, without: Collection[str] = ()) -> Iterator[Place]:
    """Every string and every key of a document, one at a time. `without`: keys whose values stay."""
    if isinstance(document, str):
        yield ()
    elif isinstance(document, dict):
        for name, value in document.items():
            yield (name, None)
            if name not in without:
                yield from ((name, *rest) for rest in places(value, without=without))
    elif isinstance(document, list):
        for position, value in enumerate(document):
            yield from ((position, *rest) for rest in places(value, without=without))


def with_text(document: Any, place: Place, text: bytes) -> bytes:
    """The document as JSON with that string in that place."""
    return json.dumps(_marked(document, place)).encode().replace(_QUOTED, text)


def _marked(document: Any, place: Place) -> Any:
    if not place:
        return _MARK
    step, *rest = place
    if isinstance(document, list):
        return [_marked(value, tuple(rest)) if at == step else value for at, value in enumerate(document)]
    if rest == [None]:
        return {_MARK if name == step else name: value for name, value in document.items()}
    return {name: _marked(value, tuple(rest)) if name == step else value for name, value in document.items()}

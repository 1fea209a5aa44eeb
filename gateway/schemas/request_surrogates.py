r"""Surrogates in the JSON text of a request: an escape such as `\ud83d` without the other one of its pair.

JSON may carry one and UTF-8 may not. Clients in JavaScript and Java cut texts by UTF-16 units, and keep such a text in
the history of a session. So a lone surrogate becomes U+FFFD before anything reads the text. The place of every other
byte stays the same, because the two escapes are equally long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Raw

from gateway.errors import InvalidValue
from gateway.schemas.duplicate_keys import Examined

REPLACED: Final = "lone_surrogates"  # in `x-gateway-dropped-params`
REPLACEMENT: Final = rb"\ufffd"
AT_ONCE: Final = 2_000  # lone ones and pairs in a step: a millisecond
#: Fields that are names. Two different ones must not become equal.
NAMES: Final = ("model", "user", "prompt_cache_key", "safety_identifier", "metadata", "client_metadata")

_FIRST = re.compile(rb"\\u[dD][89a-fA-F]")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_LONE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_table = msgspec.json.Decoder(dict[str, Raw])
_BACKSLASH = ord("\\")


def without_surrogates(text: bytes) -> bytes:
    """The text with lone surrogates replaced; the same object if it has none."""
    replacing = Replacing(text)
    for _ in replacing.steps():
        pass
    return replacing.result


class Replacing:
    """Replaces the lone surrogates of one text: exhaust `steps`, then read `result`."""

    __slots__ = ("result",)

    def __init__(self, text: bytes) -> None:
        self.result = text

    def steps(self) -> Iterator[None]:
        """Each step takes about a millisecond."""
        text, pos, done = self.result, 0, 0
        mended: bytearray | None = None
        while (found := _FIRST.search(text, pos)) is not None:
            at = found.start()
            if _is_escaped(text, at, pos):
                pos = at + 2
                continue
            if (pair := _PAIR.match(text, at)) is not None:
                pos = pair.end()
            elif (lone := _LONE.match(text, at)) is not None:
                mended = bytearray(text) if mended is None else mended
                mended[at : lone.end()] = REPLACEMENT
                pos = lone.end()
            else:
                pos = at + 2  # no escape at all: the decoder names the error
            done += 1
            if not done % AT_ONCE:
                yield
        if mended is not None:
            self.result = bytes(mended)


def _is_escaped(text: bytes, at: int, after: int) -> bool:
    """Whether the backslash at `at` is itself escaped; `after` is a place behind a whole escape."""
    before = at
    while before > after and text[before - 1] == _BACKSLASH:
        before -= 1
    return bool((at - before) % 2)


def refuse_in_names(body: bytes | Examined) -> None:
    """InvalidValue for a name with a replaced surrogate, in a body in which some were replaced."""
    try:
        fields = _table.decode(body) if isinstance(body, bytes) else body.fields or {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # the decoder of the request names the error
    for name in NAMES:
        if name in fields and REPLACEMENT in bytes(fields[name]):
            raise InvalidValue(f"Invalid '{name}': it has a lone surrogate (half of a UTF-16 pair).", param=name)

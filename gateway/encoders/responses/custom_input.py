"""The input of a custom tool, out of the arguments of the function that stands for it: `{"input": "…"}`.

The arguments arrive in pieces; `feed` returns the text that each completes. Arguments of another form are the input as
they are, which `end` returns.
"""

from __future__ import annotations

import re

import msgspec

_BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_PART = re.compile(r'\s*(\{\s*("(i(n(p(u(t("(\s*(:\s*)?)?)?)?)?)?)?)?)?)?')
_WHOLE = re.compile(r'(?:[^"\\]|\\(?:[^u]|u[0-9a-fA-F]{4}))*')
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")  # the first half of a pair
_decode = msgspec.json.Decoder(str).decode


class CustomInput:
    """Reads the arguments of one call."""

    __slots__ = ("_all", "_ended", "_inside", "_rest", "text")

    def __init__(self) -> None:
        self.text = ""  # the input so far
        self._all: list[str] = []
        self._rest = ""  # what is not read yet
        self._inside = self._ended = False

    def feed(self, piece: str) -> str:
        """The text of the input that `piece` completes; may be empty."""
        self._all.append(piece)
        if self._ended:
            return ""
        self._rest += piece
        if not self._inside:
            found = _BEGIN.match(self._rest)
            if found is None:
                self._ended = _PART.fullmatch(self._rest) is None
                return ""
            self._inside, self._rest = True, self._rest[found.end() :]
        return self._read()

    def end(self) -> str:
        """The text that is still to be sent after the last piece."""
        if self._inside:
            return ""
        text = self.text = "".join(self._all)
        return text

    def _read(self) -> str:
        """The text of the complete characters in the rest."""
        found = _WHOLE.match(self._rest)
        assert found is not None, "it matches an empty text"
        whole = found[0]
        self._ended = self._rest[len(whole) : len(whole) + 1] == '"'
        if not self._ended and (half := _HIGH.search(whole)) is not None:
            whole = whole[: half.start()]
        self._rest = self._rest[len(whole) :]
        try:
            text = _decode(f'"{whole}"'.encode())
        except (msgspec.MsgspecError, ValueError):
            text = whole  # an escape that JSON does not have
        self.text += text
        return text

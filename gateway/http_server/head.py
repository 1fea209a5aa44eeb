"""What a request says before its body, in Tornado's terms and made at little cost.

`HeaderNames` turns what a parser found into `RequestHeaders` and a request line, both remembered where they come again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

import msgspec
from tornado.httputil import HTTPHeaders, RequestStartLine

KNOWN_NAMES: Final = 512  # header spellings remembered per server; callers choose names, so the memory has a lid


class RequestHead(msgspec.Struct, frozen=True, gc=False):
    """What a request says before its body."""

    start_line: RequestStartLine
    headers: RequestHeaders
    content_length: int  # 0 when the body is chunked
    chunked: bool
    keep_alive: bool
    expects_continue: bool


class RequestHeaders(HTTPHeaders):
    """Tornado's headers, decoded when asked for: most of what a client sends is never read.

    `reading` is the application's: what it has made of these headers, which comes along when they come again.
    """

    reading: object = None

    def __init__(self, values: dict[str, list[bytes]]) -> None:
        self._values = values  # by names in Http-Header-Case
        self._lists: dict[str, list[str]] | None = None

    # The two attributes that every Tornado 6 has; a test compares the result with HTTPHeaders.parse.

    @property
    def _as_list(self) -> dict[str, list[str]]:  # type: ignore[override]
        if self._lists is None:
            self._lists = {name: [text_of(value) for value in values] for name, values in self._values.items()}
        return self._lists

    @cached_property
    def _combined_cache(self) -> dict[str, str]:  # type: ignore[override]
        return {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `name`, at once if it begins with a capital, as all do here; several ones joined by commas."""
        if self._lists is None:
            raw = self._values.get(name)
            if raw is None:
                return default if name < "[" else super().get(name, default)
            return raw[0].decode("latin-1").rstrip(" \t") if len(raw) == 1 else ",".join(map(text_of, raw))
        values = self._lists.get(name)
        if values is None:
            return default if name < "[" else super().get(name, default)
        return values[0] if len(values) == 1 else ",".join(values)

    def raw(self, name: str) -> list[bytes]:
        """The values of `name`, spelled as the parser spells it, as they came."""
        return self._values.get(name, [])

    def with_length(self, digits: bytes) -> RequestHeaders:
        """The same with another Content-Length, which no reading of them may rest on."""
        headers = RequestHeaders({**self._values, "Content-Length": [digits]})
        headers.reading = self.reading
        return headers


def text_of(value: bytes) -> str:
    return value.decode("latin-1").rstrip(" \t")


class HeaderNames:
    """What heads are made of, remembered: raw header names in Tornado's Http-Header-Case, and request lines."""

    __slots__ = ("_known", "_lines")

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._lines: dict[tuple[bytes, bytes, str], RequestStartLine] = {}

    def read(self, pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, list[bytes]]:
        """Validated values by name, in the order of arrival."""
        known = self._known
        values: dict[str, list[bytes]] = {}
        for raw, value in pairs:
            name = known.get(raw) or self._learn(raw)
            if name in values:
                values[name].append(value)
            else:
                values[name] = [value]
        return values

    def start_line(self, method: bytes, url: bytes, version: str) -> RequestStartLine:
        """The request line; 0.1 µs where making it takes 1.0, and it is nearly always one of a few."""
        key = (method, url, version)
        line = self._lines.get(key)
        if line is None:
            line = RequestStartLine(str(method, "latin-1"), _origin_form(url), "HTTP/" + version)
            if len(self._lines) < KNOWN_NAMES and len(url) <= 64 and b"?" not in url:  # a query may hold a secret
                self._lines[key] = line
        return line

    def _learn(self, raw: bytes) -> str:
        name = "-".join(word.capitalize() for word in raw.decode("latin-1").split("-"))
        if len(self._known) < KNOWN_NAMES and len(raw) <= 64:
            self._known[raw] = name
        return name


def _origin_form(url: bytes) -> str:
    """The path and query of a request target; the absolute form of proxies loses its scheme and authority."""
    target = url.decode("latin-1")
    if target[:1] == "/" or "://" not in target:
        return target
    rest = target.split("://", 1)[1]
    slash = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    path = rest[slash:]
    return path if path.startswith("/") else "/" + path

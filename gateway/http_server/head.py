"""The head of a request, as Tornado's types.

`HeaderNames` makes `RequestHeaders` and a request line of the parser's output, and caches names and lines that repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

import msgspec
from tornado.httputil import HTTPHeaders, RequestStartLine

KNOWN_NAMES: Final = 512  # cached header spellings per server; the number is limited because callers choose the names


class RequestHead(msgspec.Struct, frozen=True, gc=False):
    """The head of a request."""

    start_line: RequestStartLine
    headers: RequestHeaders
    content_length: int  # 0 when the body is chunked
    chunked: bool
    keep_alive: bool
    expects_continue: bool


class RequestHeaders(HTTPHeaders):
    """Tornado's headers, decoded on access, because most headers of a client are never read.

    `application_data` belongs to the application: a result that it computed from these headers. It is kept for the next
    request with the same headers.
    """

    application_data: object = None

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
        """The value of `name`, several values joined by commas; fast for a name that begins with a capital."""
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
        """The undecoded values of `name` in the parser's spelling."""
        return self._values.get(name, [])

    def with_length(self, digits: bytes) -> RequestHeaders:
        """A copy with another Content-Length; `application_data` must not depend on the Content-Length."""
        headers = RequestHeaders({**self._values, "Content-Length": [digits]})
        headers.application_data = self.application_data
        return headers


def text_of(value: bytes) -> str:
    return value.decode("latin-1").rstrip(" \t")


class HeaderNames:
    """A cache of raw header names in Tornado's Http-Header-Case, and of request lines."""

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
        """The request line: 0.1 µs from the cache, 1.0 µs otherwise; clients send few different lines."""
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
    """The path and query of a request target; scheme and authority of the absolute form are removed."""
    target = url.decode("latin-1")
    if target[:1] == "/" or "://" not in target:
        return target
    rest = target.split("://", 1)[1]
    slash = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    path = rest[slash:]
    return path if path.startswith("/") else "/" + path

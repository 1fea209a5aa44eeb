"""Finds the entry of a table by method and path; a part of a path such as `{name}` is a parameter."""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Mapping
from typing import Generic, TypeVar
from urllib.parse import unquote

from gateway.errors import MethodNotAllowed, UnknownURL
from gateway.web.zero_character import ZERO

T = TypeVar("T")
PARAMETER = re.compile(r"\{(\w+)\}")


class PathTable(Generic[T]):
    """Entries by path and method. A path with fewer parameters goes before one with more."""

    def __init__(self) -> None:
        self._paths: dict[str, tuple[re.Pattern[str], dict[str, T]]] = {}
        self._ordered: dict[int, list[str]] = {}  # by the slashes of a path, which no parameter contains

    def add(self, method: str, path: str, entry: T) -> None:
        """Add an entry; ValueError if the path has the method already."""
        if path not in self._paths:
            self._paths[path] = (_pattern(path), {})
            insort(self._ordered.setdefault(path.count("/"), []), path, key=lambda template: template.count("{"))
        methods = self._paths[path][1]
        if method in methods:
            raise ValueError(f"{method} {path} is there twice")
        methods[method] = entry

    def entries(self) -> list[T]:
        """All entries, by path in the order in which the paths were added."""
        return [entry for _, methods in self._paths.values() for entry in methods.values()]

    def search(self, method: str, path: str) -> tuple[T, Mapping[str, str]]:
        """The entry and the percent-decoded parameters; MethodNotAllowed, UnknownURL. HEAD finds what GET does.

        Nothing has the character U+0000 in its name.
        """
        allowed: set[str] = set()
        for template in self._ordered.get(path.count("/"), ()):
            pattern, methods = self._paths[template]
            match = pattern.fullmatch(path)
            if match is None:
                continue
            entry = methods.get("GET" if method == "HEAD" else method)
            if entry is not None:
                return entry, _parameters(template, match)
            allowed |= methods.keys() | ({"HEAD"} if "GET" in methods else set())
        if allowed:
            raise MethodNotAllowed(", ".join(sorted(allowed)))
        raise UnknownURL


def _parameters(template: str, match: re.Match[str]) -> Mapping[str, str]:
    found = {name: unquote(match[name]) for name in PARAMETER.findall(template)}
    if any(ZERO in value for value in found.values()):
        raise UnknownURL
    return found


def _pattern(path: str) -> re.Pattern[str]:
    parts = PARAMETER.split(path)  # text, name, text, name, …
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    )

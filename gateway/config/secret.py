"""Secrets by reference: `env:NAME` or `file:PATH` in the configuration, the text itself only where it is used.

A provider declares `api_key: Secret` in its Options and calls `options.api_key.reveal()` when it needs the text.
`msgspec.convert(table, Options, dec_hook=secret_hook)` decodes them. A Secret shows as `***` in every repr, format and
log line, and no encoder takes it. Sharp edge: `reveal` reads the variable or file anew each time, so that a rotated
file is seen; keep it off the path of every request.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from gateway.config.regular_files import read_regular

MAX_SECRET_BYTES = 65_536  # a file that is longer was not meant as a secret
HIDDEN = "***"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SecretError(ValueError):
    """A reference that is malformed or leads nowhere; the message names the variable or file, never a value."""


class Secret:
    """Where a secret is; `reveal()` is the only way to its text."""

    __slots__ = ("_kind", "_place")

    def __init__(self, kind: str, place: str) -> None:
        self._kind = kind  # "env", "file" or "literal"
        self._place = place  # the variable's name, the file's path, or the text itself

    @classmethod
    def parse(cls, text: object, *, literals: bool = False, folder: Path | None = None) -> Secret:
        """The secret a configuration value refers to; relative files are found from `folder`.

        A literal is an error unless `literals` says so (`gateway serve --demo`): configurations end up in repositories.
        """
        if not isinstance(text, str):
            raise SecretError("expected text: env:NAME or file:PATH")
        kind, colon, place = text.partition(":")
        if colon and kind == "env":
            if not _VARIABLE.fullmatch(place):
                raise SecretError("env: wants the name of an environment variable, as in env:OPENAI_API_KEY")
            return cls(kind, place)
        if colon and kind == "file":
            if not place or "\0" in place:
                raise SecretError("file: wants a path, as in file:/run/secrets/openai")
            return cls(kind, str((folder or Path()) / Path(place).expanduser()))
        if not literals:
            raise SecretError("a secret is given as env:NAME or file:PATH, not as a literal")
        return cls("literal", text)

    @property
    def reference(self) -> str:
        """The reference as an operator may see it; a literal stays hidden."""
        return HIDDEN if self._kind == "literal" else f"{self._kind}:{self._place}"

    @property
    def file(self) -> Path | None:
        """The file that holds it, if one does: to be read anew when it changes."""
        return Path(self._place) if self._kind == "file" else None

    def reveal(self) -> str:
        """The text itself; SecretError names the variable or file that does not hold one."""
        if self._kind == "literal":
            return self._place
        text = self._from_environment() if self._kind == "env" else self._from_file()
        if not text:
            raise SecretError(f"{self._described()} is empty")
        return text

    def _from_environment(self) -> str:
        text = os.environ.get(self._place)
        if text is None:
            raise SecretError(f"{self._described()} is not set")
        return text.strip()

    def _from_file(self) -> str:
        try:
            raw = read_regular(Path(self._place), MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise SecretError(f"{self._described()} cannot be read: {error.strerror}") from None
        if len(raw) > MAX_SECRET_BYTES:
            raise SecretError(f"{self._described()} is longer than {MAX_SECRET_BYTES} bytes")
        try:
            return raw.decode().strip()
        except UnicodeDecodeError:
            # The chained error would carry the bytes.
            raise SecretError(f"{self._described()} is not UTF-8 text") from None

    def _described(self) -> str:
        return f"environment variable {self._place}" if self._kind == "env" else f"file {self._place}"

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return (self._kind, self._place) == (other._kind, other._place)

    def __hash__(self) -> int:
        return hash((self._kind, self._place))


def secret_hook(kind: type, value: Any) -> Any:
    """A msgspec `dec_hook` that turns references into Secrets and refuses literals."""
    if kind is Secret:
        return Secret.parse(value)
    raise NotImplementedError(f"no value of a configuration becomes a {kind.__name__}")  # msgspec's own protocol

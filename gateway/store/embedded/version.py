"""Versions of Redis and Valkey servers, and which server may open which data.

The version that wrote a data folder is stored beside it, because a server that is too old for the data starts **empty**
without an error. The two products share a format up to 7.2 and have different ones after it.
"""

from __future__ import annotations

import re

import msgspec

_VERSION = re.compile(r"\b(valkey|redis)\b.*?\bv?=?(\d+)\.(\d+)\.(\d+)", re.IGNORECASE | re.DOTALL)


class ServerVersion(msgspec.Struct, frozen=True, order=True):
    """A product and its release."""

    product: str
    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> ServerVersion | None:
        """Parse the output of `valkey-server --version`, or our own version file."""
        found = _VERSION.search(text)
        if found is None:
            return None
        product, *numbers = found.groups()
        return cls(product.lower(), *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.product} {self.major}.{self.minor}.{self.patch}"

    @property
    def release(self) -> tuple[int, int]:
        """The parts with which the data format may change; it is the same for all patches."""
        return self.major, self.minor

    def can_read(self, written_by: ServerVersion) -> bool:
        """Whether this server can open data written by the other one."""
        if self.product != written_by.product and written_by.release > (7, 2):
            return False
        return self.release >= written_by.release

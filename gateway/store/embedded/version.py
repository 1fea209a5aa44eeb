"""Versions of Redis and Valkey servers, and which server may open which data.

The version that wrote a data folder is kept beside it, because a server that is too old for the data starts **empty**
without an error. The two products share a format up to 7.2 and none after it.
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
        """From what `valkey-server --version` prints, or from our own version file."""
        found = _VERSION.search(text)
        if found is None:
            return None
        product, *numbers = found.groups()
        return cls(product.lower(), *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.product} {self.major}.{self.minor}.{self.patch}"

    @property
    def release(self) -> tuple[int, int]:
        """What the data format may change with; patches keep it."""
        return self.major, self.minor

    def can_read(self, written_by: ServerVersion) -> bool:
        """Whether data written by that server opens in this one."""
        if self.product != written_by.product and written_by.release > (7, 2):
            return False
        return self.release >= written_by.release

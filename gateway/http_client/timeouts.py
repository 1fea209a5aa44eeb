"""The time limits of an upstream call."""

from __future__ import annotations

from msgspec import Struct


class Timeouts(Struct, frozen=True):
    """The time limits of an upstream call, in seconds."""

    connect: float = 5.0
    first_byte: float = 120.0
    idle: float = 120.0
    total: float = 600.0

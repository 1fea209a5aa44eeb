"""How long an upstream may take."""

from __future__ import annotations

from msgspec import Struct


class Timeouts(Struct, frozen=True):
    """How long an upstream may take, in seconds."""

    connect: float = 5.0
    first_byte: float = 120.0
    idle: float = 120.0
    total: float = 600.0

"""The time limits of an upstream call."""

from __future__ import annotations

from msgspec import Struct


class Timeouts(Struct, frozen=True):
    """The time limits of an upstream call, in seconds."""

    connect: float = 5.0  # to a connection that can be used
    first_byte: float = 120.0  # from the request to the head of its answer
    idle: float = 120.0  # between two pieces of the answer
    total: float = 600.0  # from the request to the end of its answer

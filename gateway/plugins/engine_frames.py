"""Frames between a provider and its engine's process: one byte of kind, four bytes of length, and the payload.

Kind 1 means that the process is ready. A package numbers its own kinds from 2. This module imports nothing of the
gateway, so that an engine's process starts fast.
"""

from __future__ import annotations

from struct import Struct as Layout

HEADER = Layout("!BI")  # kind, bytes of payload
READY = 1


def frame(kind: int, payload: bytes = b"") -> bytes:
    """One frame as bytes."""
    return HEADER.pack(kind, len(payload)) + payload

"""Hash slots of a Redis cluster."""

from __future__ import annotations

from binascii import crc_hqx

SLOTS = 16384


def slot_of(key: str) -> int:
    """The hash slot of a key: CRC16 of the text in its first braces, or of the whole key."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS  # the same CRC as in Redis

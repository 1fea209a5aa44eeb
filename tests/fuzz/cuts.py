"""Bytes that arrive in pieces, and bytes that are damaged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from tests.fuzz.choices import Choices

BYTE_BY_BYTE = -1


class Damage(Struct, frozen=True):
    """One change of a stream."""

    how: str  # insert, drop, replace, repeat
    at: int
    data: bytes = b"\0"
    size: int = 1


TOKENS = (
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"0", b"-1", b"ffffffffffffffff", b"\xff",
    b"--", b'"', b"chunked", b"Content-Length: 1\r\n", b"Transfer-Encoding: chunked\r\n",
)  # fmt: skip

HOW = ("insert", "drop", "replace", "repeat")


def cuts_of(choices: Choices) -> list[int]:
    """Where a stream is cut: positions, or BYTE_BY_BYTE."""
    return [BYTE_BY_BYTE] if choices.one_in(6) else choices.many(lambda: choices.below(1500), 6)


def damages_of(choices: Choices) -> list[Damage]:
    """Changes of a stream."""

    def one() -> Damage:
        data = choices.data(4) or choices.of(TOKENS)
        return Damage(choices.of(HOW), choices.below(1500), data, choices.number(1, 40))

    return choices.many(one, 3)


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The stream, cut; no piece is empty."""
    if BYTE_BY_BYTE in cuts:
        return [data[at : at + 1] for at in range(len(data))]
    marks = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(marks)]


def damaged(data: bytes, damages: Sequence[Damage]) -> bytes:
    """The stream after these changes."""
    for one in damages:
        at = one.at % (len(data) + 1)
        rest = data[at:]
        match one.how:
            case "insert":
                data = data[:at] + one.data + rest
            case "drop":
                data = data[:at] + rest[one.size :]
            case "replace":
                data = data[:at] + one.data + rest[len(one.data) :]
            case "repeat":
                data = data[: at + one.size] + rest
    return data

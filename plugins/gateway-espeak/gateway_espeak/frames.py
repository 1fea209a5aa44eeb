"""What the provider and its engine's process say to each other: a kind, a length, and so many bytes.

The engine begins with READY and a `Hello`. It is sent a `Job`, and answers PIECE after PIECE of sound and END. Sharp
edge: there is no word for stopping; whoever leaves a job ends the process.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct as Layout

from msgspec import Struct

HEADER = Layout("!BI")


class Kind(IntEnum):
    """The first byte of a frame."""

    READY = 1
    JOB = 2
    PIECE = 3
    END = 4


#: What ends an answer, READY being the answer to having been started.
ENDS = frozenset({Kind.READY, Kind.END})


class Hello(Struct):
    """What the engine has, in lower case: languages and names of voices, and what may follow a `+`."""

    voices: dict[str, str]  # to eSpeak's own identifiers
    variants: dict[str, str]


class Job(Struct):
    """A text to say."""

    text: str
    voice: str  # an identifier, with a variant
    rate: int  # words a minute
    format: str


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(kind, len(payload)) + payload

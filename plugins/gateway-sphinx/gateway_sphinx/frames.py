"""What the provider and its engine's process say to each other: a kind, a length, and so many bytes.

The engine begins with READY. It is sent a `Job`, the file in DATA pieces, and END; it answers an `Utterance` in each
PIECE and a `Summary` with END, or a `Refusal`. Sharp edge: there is no word for stopping; whoever leaves a job ends the
process.
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
    DATA = 3
    PIECE = 4
    END = 5
    REFUSED = 6


#: What ends an answer, READY being the answer to having been started.
ENDS = frozenset({Kind.READY, Kind.END, Kind.REFUSED})


class Job(Struct):
    """What comes before a file."""

    longest: float  # seconds


class Spoken(Struct):
    """A word and its place in the sound, in seconds."""

    word: str
    start: float
    end: float


class Utterance(Struct):
    """What was said between two pauses; times are seconds."""

    start: float
    end: float
    words: list[Spoken]

    @property
    def text(self) -> str:
        """The words in a row."""
        return " ".join(spoken.word for spoken in self.words)


class Summary(Struct):
    """What is known at the end."""

    duration: float  # seconds


class Refusal(Struct):
    """Why a file is not listened to, in words for the caller."""

    message: str


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(kind, len(payload)) + payload

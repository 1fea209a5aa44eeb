"""The frames between the provider and its engine's process, in the form of `gateway.plugins.engine_frames`.

The engine begins with READY. It is sent a `Job`, the file in DATA pieces, and END; it answers an `Utterance` in each
PIECE and a `Summary` with END, or a `Refusal`. Sharp edge: no frame stops a job; a provider that leaves a job ends the
process.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class Kind(IntEnum):
    """The first byte of a frame."""

    READY = 1  # as in gateway.plugins.engine_frames
    JOB = 2
    DATA = 3
    PIECE = 4
    END = 5
    REFUSED = 6


#: What ends an answer.
ENDS = frozenset({Kind.END, Kind.REFUSED})


class Job(Struct):
    """What comes before a file."""

    longest: float  # seconds


class Spoken(Struct):
    """A word and its place in the audio, in seconds."""

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

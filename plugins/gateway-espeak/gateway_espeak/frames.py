"""The frames between the provider and its engine's process, in the form of `gateway.plugins.engine_frames`.

The engine begins with READY and a `Hello`. It is sent a `Job`, and answers PIECE after PIECE of audio and END. Sharp
edge: no frame stops a job; a provider that leaves a job ends the process.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class Kind(IntEnum):
    """The first byte of a frame."""

    READY = 1  # as in gateway.plugins.engine_frames
    JOB = 2
    PIECE = 3
    END = 4


#: What ends an answer.
ENDS = frozenset({Kind.END})


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

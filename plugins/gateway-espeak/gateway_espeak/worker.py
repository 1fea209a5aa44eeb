"""The engine's process, `python -m gateway_espeak.worker [LIBRARY]`: takes jobs from its standard input, a socket, and
answers on it, one after the other.

It is a process and not a thread because the library is one per process, takes text from anywhere and is written in C:
if it falls, one answer falls and not the gateway. Sharp edge: audio that nobody reads makes it wait.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

import msgspec

from gateway.plugins.engine_frames import HEADER, frame

from .encoding import encoder
from .frames import Hello, Job, Kind
from .library import Library

POLITE = 5  # how much the gateway's own processes go first


def main(path: str = "") -> None:
    """Serve until the other side hangs up."""
    os.nice(POLITE)
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(0), "wb")
    library = Library(path)
    try:
        _send(outbox, Kind.READY, msgspec.json.encode(Hello(library.voices(), library.variants())))
        while len(head := inbox.read(HEADER.size)) == HEADER.size:
            _, length = HEADER.unpack(head)
            _serve(library, msgspec.json.decode(inbox.read(length), type=Job), outbox)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the gateway has gone; what is left in the buffer has no reader


def _serve(library: Library, job: Job, outbox: BinaryIO) -> None:
    audio = encoder(job.format, library.rate)
    spoken = 0

    def take(samples: bytes) -> None:
        nonlocal spoken
        spoken += len(samples)
        if piece := audio.feed(samples):
            _send(outbox, Kind.PIECE, piece)

    library.speak(job.text, voice=job.voice, rate=job.rate, take=take)
    if not spoken:
        take(bytes(2 * library.rate // 10))  # a text without a word in it is a moment of silence
    if piece := audio.close():
        _send(outbox, Kind.PIECE, piece)
    _send(outbox, Kind.END)


def _send(outbox: BinaryIO, kind: Kind, payload: bytes = b"") -> None:
    outbox.write(frame(kind, payload))
    outbox.flush()


if __name__ == "__main__":
    main(*sys.argv[1:2])

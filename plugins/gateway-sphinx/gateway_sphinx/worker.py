"""The engine's process, `python -m gateway_sphinx.worker`: takes jobs from its standard input, a socket, and answers on
it, one after the other.

It is a process and not a thread because the decoders are written in C and take files from anywhere: if one falls, a
transcript falls and not the gateway. Sharp edge: each file is written to the temporary folder first, for decoders jump
about in it.
"""

from __future__ import annotations

import os
import tempfile
from typing import IO, BinaryIO

import msgspec

from gateway.plugins.engine_frames import HEADER, frame

from .audio import Unreadable, samples
from .frames import Job, Kind, Refusal, Summary
from .recogniser import Recogniser

POLITE = 5  # how much the gateway's own processes go first


def main() -> None:
    """Serve until the other side hangs up."""
    os.nice(POLITE)
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(0), "wb")
    recogniser = Recogniser()
    try:
        _send(outbox, Kind.READY)
        while (received := _receive(inbox)) is not None:
            job = msgspec.json.decode(received[1], type=Job)
            with tempfile.TemporaryFile() as file:  # without a name, so that it goes with the process
                if not _save(inbox, file):
                    return
                _answer(recogniser, file, job, outbox)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the gateway has gone; what is left in the buffer has no reader


def _save(inbox: BinaryIO, file: IO[bytes]) -> bool:
    """Write the file that comes; whether it came whole."""
    while (received := _receive(inbox)) is not None:
        kind, piece = received
        if kind == Kind.END:
            file.seek(0)
            return True
        file.write(piece)
    return False


def _answer(recogniser: Recogniser, file: IO[bytes], job: Job, outbox: BinaryIO) -> None:
    try:
        for utterance in recogniser.utterances(samples(file, job.longest)):
            _send(outbox, Kind.PIECE, msgspec.json.encode(utterance))
    except Unreadable as error:
        _send(outbox, Kind.REFUSED, msgspec.json.encode(Refusal(str(error))))
    else:
        _send(outbox, Kind.END, msgspec.json.encode(Summary(round(recogniser.heard, 3))))


def _receive(inbox: BinaryIO) -> tuple[int, bytes] | None:
    """The next frame; None when the other side has hung up."""
    head = inbox.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    kind, length = HEADER.unpack(head)
    payload = inbox.read(length)
    return (kind, payload) if len(payload) == length else None


def _send(outbox: BinaryIO, kind: Kind, payload: bytes = b"") -> None:
    outbox.write(frame(kind, payload))
    outbox.flush()


if __name__ == "__main__":
    main()

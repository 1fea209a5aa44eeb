"""The file with the content of a store: one record after the other, each a part of a key, compressed.

The form does not depend on the server: a backup of one server can be restored into another product, an older release or
a cluster. A record is its length, four bytes in network order, and a `Part` in MessagePack.
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec
from msgspec import Struct

from gateway.backup import BackupError

Kind = Literal["string", "hash", "set", "zset", "stream"]
MAGIC = b"model-gateway store 1\n"
BUFFERED = 2**16  # bytes that are compressed at once
_LENGTH = struct.Struct("!I")
_encoder = msgspec.msgpack.Encoder()


class Part(Struct, array_like=True):
    """Some elements of a key, or all. The first part of a key replaces what was there before.

    `values`: a string is one value; a hash has names and values, a sorted set members and scores in turn; an entry of a
    stream is its id and the list of its fields and values.
    """

    key: str
    kind: Kind
    values: list[Any]
    first: bool = True
    expires: int = 0  # Unix milliseconds by the store's clock; 0 for never


_decoder = msgspec.msgpack.Decoder(Part)


class RecordWriter:
    """Writes a new file of mode 0600."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._raw = os.fdopen(self._descriptor, "wb")
        self._file = cast(BinaryIO, gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=1, mtime=0))
        self._file.write(MAGIC)
        self.records = 0
        self._buffer = bytearray()

    def write(self, part: Part) -> None:
        """Add a part."""
        encoded = _encoder.encode(part)
        self._buffer += _LENGTH.pack(len(encoded)) + encoded
        self.records += 1
        if len(self._buffer) >= BUFFERED:
            self._flush()

    def _flush(self) -> None:
        self._file.write(self._buffer)
        self._buffer.clear()

    def close(self) -> None:
        """End the file; it is on the disk afterwards."""
        self._flush()
        self._file.close()
        self._raw.flush()
        os.fsync(self._descriptor)
        self._raw.close()


def read_records(path: Path) -> Iterator[Part]:
    """The parts of a file in order; BackupError if it is damaged."""
    try:
        with gzip.open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise BackupError(f"{path}: this version does not know the form of this file")
            while head := file.read(_LENGTH.size):
                (length,) = _LENGTH.unpack(head)
                yield _decoder.decode(file.read(length))
    except (EOFError, gzip.BadGzipFile, struct.error, msgspec.MsgspecError) as error:
        raise BackupError(f"{path} is damaged: {error}") from None

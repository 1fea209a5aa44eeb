"""An archive file: ledger lines that were moved out of the store. Each line has a hash over all lines before it.

::

    with closing(Archive.open(path, checkpoints)) as archive:  # locked: one writer per file
        archive.append(lines)                                  # on disk, synced and read back when it returns

The file holds JSON lines, has mode 0600 and may hold any number of accounts. The lines of an account are in order. A
changed line no longer matches the hashes of the later lines and of the archive checkpoint in the store. Sharp edge: a
last line without a line end was cut by a crash before anything was deleted for it, so `open` removes it. Any other
damage is an `ArchiveError`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.line import LedgerLine

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LedgerLine)


class ArchiveError(Exception):
    """The archive cannot be used; the text is one line for the operator."""


class ArchiveProof(Struct):
    """What the archives contain of one account."""

    head: ArchiveCheckpoint  # at the last line
    first: int  # number of the first line
    at_checkpoint: ArchiveCheckpoint | None = None  # at the last line that the store's checkpoint covers
    surplus: dict[int, str] = {}  # hashes of later lines, which a crash left both in the file and in the store
    lines: int = 0
    faults: list[tuple[str, str, str]] = []  # rule, expected, found


class Archive:
    """A file that is open for appending, with the proofs of its content at the time it was opened."""

    def __init__(self, path: Path, descriptor: int, proofs: dict[str, ArchiveProof]) -> None:
        self.path = path
        self.proofs = proofs
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, checkpoints: Mapping[str, ArchiveCheckpoint]) -> Archive:
        """Open or create the file, lock it, remove an incomplete last line and check all others."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                raise ArchiveError(f"{path} can be read by others; chmod 600 it")
            _lock(path, descriptor, fcntl.LOCK_EX)
            _sync_folder(path)  # without it a power failure could remove a new file with its content
            _cut_torn_end(path, descriptor)
            proofs = prove([path], checkpoints)
            for account, proof in proofs.items():
                for rule, expected, found in proof.faults[:1]:
                    raise ArchiveError(f"{path}: {account}: {rule}: expected {expected}, found {found}")
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, proofs)

    def append(self, lines: Sequence[LedgerLine]) -> None:
        """Write lines that have their hashes; they are on disk and were read back when this returns."""
        if not lines:
            return
        written = b"".join(_encoder.encode(line) + b"\n" for line in lines)
        start = os.fstat(self._descriptor).st_size
        rest = memoryview(written)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        os.fsync(self._descriptor)
        if os.pread(self._descriptor, len(written), start) != written:
            raise ArchiveError(f"{self.path} does not hold what was written to it; nothing was deleted")

    def close(self) -> None:
        """Close the file, which releases its lock."""
        os.close(self._descriptor)


@contextmanager
def unchanging(paths: Sequence[Path]) -> Iterator[None]:
    """Lock the files against writers inside the block."""
    with ExitStack() as files:
        for path in paths:
            _lock(path, files.enter_context(path.open("rb")).fileno(), fcntl.LOCK_SH)
        yield


def read_archive(path: Path) -> Iterator[LedgerLine]:
    """The lines of a file in order, without a check of their hashes."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                return  # another process writes it, or a crash cut it
            try:
                yield _decoder.decode(text)
            except msgspec.MsgspecError as error:
                raise ArchiveError(f"{path}, line {number}: {error}") from None


def read_archives(paths: Iterable[Path], account: str) -> Iterator[LedgerLine]:
    """The lines of one account over several files."""
    return (line for path in paths for line in read_archive(path) if line.account == account)


def prove(paths: Iterable[Path], checkpoints: Mapping[str, ArchiveCheckpoint]) -> dict[str, ArchiveProof]:
    """Add up every account's lines, oldest file first, and compare them with the given checkpoints of the store."""
    proofs: dict[str, ArchiveProof] = {}
    for path in paths:
        for line in read_archive(path):
            proof = proofs.get(line.account)
            if proof is None:
                proof = proofs[line.account] = _begin(line)
            else:
                _follow(proof, line)
            checkpoint = checkpoints.get(line.account)
            if checkpoint is not None:
                _compare(proof, line, checkpoint)
    return proofs


def _begin(line: LedgerLine) -> ArchiveProof:
    """Begin a proof. The first line of a file that continues another file is not checked; later lines depend on it."""
    proof = ArchiveProof(ArchiveCheckpoint(), line.n, lines=1)
    if line.n == 1:
        _check(proof, line)
        proof.head.add(line)
    else:
        proof.head.n, proof.head.id, proof.head.balance = line.n, line.id, line.balance
    proof.head.hash = line.hash
    return proof


def _follow(proof: ArchiveProof, line: LedgerLine) -> None:
    _check(proof, line)
    proof.lines += 1
    proof.head.add(line)
    # The found values, so that one fault is not reported again for each later line.
    proof.head.balance, proof.head.hash = line.balance, line.hash


def _check(proof: ArchiveProof, line: LedgerLine) -> None:
    head = proof.head
    for rule, expected, found in (
        ("archive sequence", head.n + 1, line.n),
        (f"archive running {line.n}", head.balance + line.amount, line.balance),
        (f"archive hash {line.n}", line.chained(head.hash), line.hash),
    ):
        if expected != found:
            proof.faults.append((rule, str(expected), str(found)))


def _compare(proof: ArchiveProof, line: LedgerLine, checkpoint: ArchiveCheckpoint) -> None:
    if line.n == checkpoint.n:
        proof.at_checkpoint = proof.head.copy()
    elif line.n > checkpoint.n:
        proof.surplus[line.n] = line.hash


def _lock(path: Path, descriptor: int, how: int) -> None:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ArchiveError(f"{path} is in use by another process") from None


def _cut_torn_end(path: Path, descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    whole, at = 0, size
    while at and not whole:
        start = max(0, at - 65_536)
        whole = start + 1 + os.pread(descriptor, at - start, start).rfind(b"\n")
        if whole == start:  # no line end in this block
            whole = 0
        at = start
    if whole != size:
        os.ftruncate(descriptor, whole)
        os.fsync(descriptor)


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

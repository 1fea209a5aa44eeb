"""Archive files of older versions: ledger lines that `gateway compact` moved out of the store.

The file holds JSON lines and may hold any number of accounts. The lines of an account are in order, and each has a hash
over all lines before it. A changed line no longer matches the hashes of the later lines and of the archive checkpoint
in the store. Sharp edge: a last line without a line end was cut by a crash before anything was deleted for it. Any
other damage is an `ArchiveError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.line import LedgerLine

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


def read_archive(path: Path) -> Iterator[LedgerLine]:
    """The lines of a file in order, without a check of their hashes."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                return  # a crash cut it
            try:
                yield _decoder.decode(text)
            except (ValueError, RecursionError) as error:
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

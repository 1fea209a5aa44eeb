"""A new CSV file that only its owner may read, for what is shown once: keys and links."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gateway.cli.output import note
from gateway.cli.root import Failure
from gateway.reports.csv_file import RowWriter


@contextmanager
def private_csv(
    out: Path, columns: Sequence[str], *, what: str, work: str
) -> Iterator[Callable[[Sequence[str]], None]]:
    """Writes each row to the disk before the next one is made. The file is removed if it stays without a row.

    `what` names the rows in messages, and `work` what makes them. Failure if the file exists.
    """
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Failure(f"{out} exists already; its {what} are not to be lost") from None
    written = 0
    with os.fdopen(descriptor, "w", newline="") as file:
        writer = RowWriter(file)
        writer.row(columns)

        def write(row: Sequence[str]) -> None:
            nonlocal written
            written += 1
            writer.row(row)
            file.flush()
            os.fsync(descriptor)

        try:
            yield write
        except BaseException:
            if written:
                note(f"the {work} stopped; {what} made before: {written}, they are in {out}")
            raise
        finally:
            if not written:
                out.unlink()

"""`python -m benchmarks installation`: fills installations, measures everything in them, writes the table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Console

from benchmarks.fault import BenchFault
from benchmarks.installation.commands import backup_commands, reading_commands
from benchmarks.installation.filling import filled
from benchmarks.installation.filling_store import request_id_of
from benchmarks.installation.place import installation_place
from benchmarks.installation.requests import values_of
from benchmarks.installation.samples import Document, Sample
from benchmarks.installation.served import served
from benchmarks.installation.size import Size
from benchmarks.installation.table import lines_of, table_of
from benchmarks.installation.walking import walk
from benchmarks.page import DOCS, put
from benchmarks.report import machine
from benchmarks.start import prepare

FOLDER = Path(__file__).parent
BEFORE, AFTER = FOLDER / "before.json", FOLDER / "after.json"
SIZES = (100, 10_000, 100_000)
NAME = "growth of installations"


@click.command()
@click.option("--size", "sizes", multiple=True, type=click.IntRange(100), help="Accounts; repeat it. 1000000 is large.")
@click.option(
    "--to", "file", default=AFTER, type=click.Path(path_type=Path), metavar="FILE", help="Default: after.json."
)
@click.option("--no-backup", is_flag=True, help="Leave out the backup and its restore.")
@click.option("--few", is_flag=True, help="Only the start, lists, searches, audits, a backup and its restore.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Keep the installations there; one that was filled is measured again.",
)
def installation(*, sizes: tuple[int, ...], file: Path, no_backup: bool, few: bool, keep: Path | None) -> None:
    """Measure every page, route, command and job at several sizes; of after.json, docs/scaling.md gets a table."""
    messages = Console(stderr=True)
    samples: list[Sample] = []
    prepare()
    for accounts in sizes or SIZES:
        messages.print(f"{accounts:,} accounts: filling")
        try:
            for some in measured(Size(accounts), has_backup=not no_backup, few=few, keep=keep):
                samples += some
                document = Document(machine=machine(), sizes=sorted({one.size for one in samples}), samples=samples)
                file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
                messages.print(f"{accounts:,} accounts: {some[-1].kind} {some[-1].name}: {some[-1].seconds:,.1f} s")
        except BenchFault as fault:
            raise click.ClickException(str(fault)) from None
    if len(document.sizes) > 1:
        for line in lines_of(document):
            click.echo(line)
    if file in (BEFORE, AFTER):
        put(DOCS / "scaling.md", NAME, written(), by="installation")


def written() -> str:
    """The table of the two files."""
    after = read(AFTER) if AFTER.exists() else None
    return table_of(read(BEFORE), after)


def read(file: Path) -> Document:
    """A file of measurements."""
    return msgspec.json.decode(file.read_bytes(), type=Document)


def measured(size: Size, *, has_backup: bool, few: bool = False, keep: Path | None = None) -> Iterator[list[Sample]]:
    """Everything at one size, in parts: a large installation takes hours, and its last step may fail."""
    with _folder(size, keep) as folder, installation_place(folder, size) as place:
        filling = filled(place, size)
        yield [job("fill", size, filling.seconds)]
        values = values_of(filling.key_id, request_id_of(size.accounts))
        with served(place, filling.key) as gateway:
            yield [job("start", size, gateway.started_within)]
            yield walk(place, gateway, size.accounts, values, few=few)
            for sample in reading_commands(place, size.accounts, values, few=few):
                yield [sample]
        if has_backup:
            for sample in backup_commands(place, size.accounts):
                yield [sample]


@contextmanager
def _folder(size: Size, keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        folder = keep / str(size.accounts)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Path(name)


def job(name: str, size: Size, seconds: float) -> Sample:
    """A job of which only the time is known."""
    return Sample(kind="job", name=name, size=size.accounts, status=0, seconds=seconds, sent=0, memory=0)

"""The commands of an installation: time, output, and the most memory of the child."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

from benchmarks.fault import BenchFault
from benchmarks.installation.place import ENVIRONMENT, InstallationPlace
from benchmarks.installation.samples import Sample
from benchmarks.installation.size import LARGE

#: Commands that only read, each of them three times; a slow one once.
READING: dict[str, list[str]] = {
    "accounts list": ["accounts", "list"],
    "accounts show": ["accounts", "show", LARGE],
    "accounts show, unknown": ["accounts", "show", "acmee"],
    "keys list": ["keys", "list"],
    "keys list ACCOUNT": ["keys", "list", LARGE],
    "keys show": ["keys", "show", "{key}"],
    "users list": ["users", "list"],
    "users show": ["users", "show", "00000000@example.com"],
    "usage list": ["usage", "list", LARGE],
    "usage list --limit 100": ["usage", "list", LARGE, "--limit", "100"],
    "usage show": ["usage", "show", "{request_id}"],
    "report": ["report"],
    "report --group-by account": ["report", "--group-by", "account"],
    "models": ["models"],
    "audit": ["audit"],
    "audit ACCOUNT": ["audit", LARGE],
    "audit-trail": ["audit-trail"],
}
FEW = frozenset({"accounts list", "accounts show, unknown", "usage show", "audit", "audit ACCOUNT"})
LAUNCHER = Path(__file__).with_name("launcher.py")
REPEATED = 3
QUICK = 2.0  # seconds within which a command is repeated


class Ran(Struct, frozen=True):
    """One run of a command."""

    seconds: float
    cpu: float  # seconds
    status: int
    memory: int  # bytes at most


def reading_commands(
    place: InstallationPlace, size: int, values: dict[str, str], *, few: bool = False
) -> Iterator[Sample]:
    """The commands that only read; or those of `FEW`."""
    for name, arguments in READING.items():
        if few and name not in FEW:
            continue
        yield sample_of("command", name, place, size, [argument.format(**values) for argument in arguments])


def backup_commands(place: InstallationPlace, size: int) -> Iterator[Sample]:
    """A backup, then its restore over what is there; the gateway must not run."""
    backup = place.folder / "backup"
    shutil.rmtree(backup, ignore_errors=True)  # of an installation that was kept
    yield sample_of("job", "backup", place, size, ["backup", str(backup), "--with-pepper"], most=1)
    yield sample_of("job", "restore", place, size, ["restore", str(backup), "--force"], most=1)


def sample_of(
    kind: str, name: str, place: InstallationPlace, size: int, arguments: Sequence[str], *, most: int = REPEATED
) -> Sample:
    """Run a command up to `most` times."""
    output, ran = place.folder / "output", list[Ran]()
    while not ran or (len(ran) < most and ran[0].seconds < QUICK):
        ran.append(run(place, arguments, output))
    return Sample(
        kind=kind,
        name=name,
        size=size,
        status=ran[-1].status,
        seconds=median(one.seconds for one in ran),
        cpu=median(one.cpu for one in ran),
        sent=output.stat().st_size,
        memory=max(one.memory for one in ran),
    )


def run(place: InstallationPlace, arguments: Sequence[str], output: Path) -> Ran:
    """Run `gateway ARGUMENTS`; its output is in the file."""
    report = output.with_suffix(".report")
    gateway = [sys.executable, "-m", "gateway", *arguments, "--config", str(place.config)]
    with output.open("wb") as out, output.with_suffix(".errors").open("wb") as errors:
        subprocess.run(
            [sys.executable, "-S", str(LAUNCHER), str(report), *gateway],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            cwd=place.folder,
            env={**os.environ, **ENVIRONMENT},
            check=True,
        )
    seconds, cpu, status, memory = report.read_text(encoding="ascii").split()
    return Ran(float(seconds), float(cpu), int(status), int(memory))


def told(place: InstallationPlace, *arguments: str) -> str:
    """What a command prints; BenchFault if it fails."""
    output = place.folder / "told"
    if run(place, arguments, output).status:
        errors = output.with_suffix(".errors").read_text(encoding="utf-8")
        raise BenchFault(f"gateway {' '.join(arguments)}: {errors.strip()[-300:]}")
    return output.read_text(encoding="utf-8").strip()

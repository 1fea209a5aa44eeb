"""The table of docs/scaling.md: time and size at the largest installation, and the exponents before and after."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.installation.exponents import exponent
from benchmarks.installation.samples import Document, Sample, by_name
from benchmarks.report import measured_on

TIME_FLOOR = 0.020  # seconds: less is noise
SENT_FLOOR = 3_000.0  # bytes
MEBI = 2**20
HEAD = "| what | before: size | time | CPU | memory | exponents | after: size | time | CPU | memory | exponents |\n"
RULE = "|---" + "|--:" * 10 + "|\n"


def table_of(before: Document, after: Document | None) -> str:
    """The table. Each cell is that of the largest installation; an exponent is over all of them."""
    old = by_name(before.samples)
    new = by_name(after.samples) if after is not None else {}
    rows = [
        f"| {kind} `{name}` | {_cells(old.get((kind, name)))} | {_cells(new.get((kind, name)))} |\n"
        for kind, name in {**old, **new}
    ]
    sizes = " and ".join(dict.fromkeys(f"{max(one.sizes):,}" for one in (before, after) if one is not None))
    machines = [one.machine for one in (before, after) if one is not None]
    foot = f"\n{sizes} accounts; {before.machine['cpu']}, {measured_on(machines)}.\n"
    return HEAD + RULE + "".join(rows) + foot


def _cells(samples: dict[int, Sample] | None) -> str:
    if samples is None:
        return "– | – | – | – | –"
    largest = samples[max(samples)]
    failed = f" (status {largest.status})" if _failed(largest) else ""
    return " | ".join(
        [
            _bytes(largest.sent) + failed,
            _time(largest.seconds),
            _time(largest.cpu) if largest.cpu else "–",
            f"{largest.memory / MEBI:,.0f} MiB" if largest.memory else "–",
            _exponents(samples),
        ]
    )


def exponents_of(samples: dict[int, Sample]) -> tuple[float, float]:
    """The exponents of CPU, or of time where CPU was not measured, and of bytes."""
    return (
        exponent({size: one.cpu or one.seconds for size, one in samples.items()}, floor=TIME_FLOOR),
        exponent({size: float(one.sent) for size, one in samples.items()}, floor=SENT_FLOOR),
    )


def _exponents(samples: dict[int, Sample]) -> str:
    return ", ".join(f"{one:.2f}" for one in exponents_of(samples)) if len(samples) > 1 else "–"


def _failed(sample: Sample) -> bool:
    return sample.status != 0 if sample.kind in ("command", "job") else sample.status >= 400


def _time(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{1000 * seconds:,.0f} ms"


def _bytes(count: int) -> str:
    if count >= 10**6:
        return f"{count / 10**6:,.1f} MB"
    return f"{count / 1000:,.1f} KB"


def lines_of(document: Document) -> Iterator[str]:
    """For a terminal: what grows most comes first."""
    found = [(exponents_of(one), kind, name, one) for (kind, name), one in by_name(document.samples).items()]
    for (time, sent), kind, name, one in sorted(found, key=lambda row: -max(row[0])):
        largest = one[max(one)]
        yield f"{time:5.2f} {sent:5.2f} {_time(largest.seconds):>9} {_bytes(largest.sent):>11} {kind} {name}"

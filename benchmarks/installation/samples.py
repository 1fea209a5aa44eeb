"""What was measured: one cost of one thing in an installation of one size."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Sample(Struct, frozen=True, kw_only=True):
    """A page, route, command or job at one size; a figure that was not measured is 0.

    `cpu`: of the process that answers. `memory`: the most that it had resident.
    """

    kind: str  # page, route, command, job
    name: str
    size: int  # accounts
    status: int  # of HTTP, or the exit status
    seconds: float  # median
    cpu: float = 0.0  # seconds, median
    sent: int  # bytes of the answer or of the output
    memory: int  # bytes


class Document(Struct, frozen=True, kw_only=True):
    """A file of measurements."""

    machine: dict[str, str | int]
    sizes: list[int]
    samples: list[Sample]


def by_name(samples: Iterable[Sample]) -> dict[tuple[str, str], dict[int, Sample]]:
    """The samples by kind and name, then by size; in their order."""
    found: dict[tuple[str, str], dict[int, Sample]] = {}
    for sample in samples:
        found.setdefault((sample.kind, sample.name), {})[sample.size] = sample
    return found

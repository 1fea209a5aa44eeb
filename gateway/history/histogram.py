"""Mean and percentiles of times from the cells of a rollup.

The counts of a cell are taken to be spread evenly over it. Rows of older versions have wider cells; both are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from gateway.database.tables import (
    DURATION_CELLS,
    FIRST_TOKEN_CELLS,
    OLD_DURATION_CELLS,
    OLD_DURATION_MS,
    OLD_FIRST_TOKEN_CELLS,
    OLD_FIRST_TOKEN_MS,
    TIMES_MS,
)

Part = tuple[float, float, float]  # lower edge, upper edge, counts
NEARLY = 1e-6  # of a call: sums of fractions are not exact


class Times(Struct, frozen=True):
    """Milliseconds. A percentile is interpolated within its cell, and never above the longest time."""

    mean: int
    p50: int
    p95: int
    p99: int


class _Cell(Struct, frozen=True):
    """Counts of times above `lower` up to `upper`."""

    lower: float
    upper: float
    count: int


def durations(sums: Mapping[str, int]) -> Times | None:
    """The whole times of the calls; None without calls."""
    cells = _cells(sums, DURATION_CELLS, TIMES_MS, sums["duration_max_ms"])
    return _times([*cells, *_cells(sums, OLD_DURATION_CELLS, OLD_DURATION_MS, 0)], sums["duration_ms"])


def first_tokens(sums: Mapping[str, int]) -> Times | None:
    """The times to the first token, of the calls that have one; None without such calls."""
    cells = _cells(sums, FIRST_TOKEN_CELLS, TIMES_MS, sums["first_token_max_ms"])
    return _times([*cells, *_cells(sums, OLD_FIRST_TOKEN_CELLS, OLD_FIRST_TOKEN_MS, 0)], sums["first_token_ms"])


def _cells(sums: Mapping[str, int], names: Sequence[str], bounds: Sequence[int], longest: int) -> list[_Cell]:
    """The cells that have counts; `longest` is 0 if it is not known: then the last cell ends where it begins."""
    found = []
    edges = (0, *bounds, max(longest, bounds[-1]))
    for name, (lower, upper) in zip(names, pairwise(edges), strict=True):
        if sums[name] > 0:
            end = min(upper, longest) if longest else upper
            found.append(_Cell(min(lower, end - 1), end, sums[name]))
    return found


def _times(cells: Sequence[_Cell], total: int) -> Times | None:
    count = sum(cell.count for cell in cells)
    if not count:
        return None
    parts = list(_parts(cells))
    p50, p95, p99 = (_percentile(parts, math.ceil(count * share - NEARLY)) for share in (0.5, 0.95, 0.99))
    return Times(round(total / count), p50, p95, p99)


def _percentile(parts: Iterable[Part], rank: int) -> int:
    """The time up to which there are `rank` counts."""
    below, end = 0.0, 0.0
    for lower, end, inside in parts:
        if inside and below + inside >= rank - NEARLY:
            return max(0, round(lower + (end - lower) * min(1.0, (rank - below) / inside)))
        below += inside
    return round(end)


def _parts(cells: Sequence[_Cell]) -> Iterator[Part]:
    """The parts of the cells between all of their edges, in order: their edges and the counts in them."""
    edges = sorted({edge for cell in cells for edge in (cell.lower, cell.upper)})
    for lower, upper in pairwise(edges):
        share = sum(
            cell.count * (upper - lower) / (cell.upper - cell.lower)
            for cell in cells
            if cell.lower <= lower and upper <= cell.upper
        )
        yield lower, upper, share

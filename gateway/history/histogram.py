"""Mean and percentiles of times from the cells of a rollup."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from gateway.database.tables import DURATION_CELLS, DURATION_MS, FIRST_TOKEN_CELLS, FIRST_TOKEN_MS


class Times(Struct, frozen=True):
    """Milliseconds. A percentile is interpolated within its cell; in the last cell, it is that cell's lower bound."""

    mean: int
    p50: int
    p95: int
    p99: int


def durations(sums: Mapping[str, int]) -> Times | None:
    """The whole times of the calls; None without calls."""
    return _times([sums[cell] for cell in DURATION_CELLS], DURATION_MS, sums["duration_ms"])


def first_tokens(sums: Mapping[str, int]) -> Times | None:
    """The times to the first token, of the calls that have one; None without such calls."""
    return _times([sums[cell] for cell in FIRST_TOKEN_CELLS], FIRST_TOKEN_MS, sums["first_token_ms"])


def _times(cells: Sequence[int], bounds: Sequence[int], total: int) -> Times | None:
    below = list(accumulate(cells))
    if below[-1] <= 0:
        return None
    p50, p95, p99 = (_percentile(cells, below, bounds, share) for share in (0.5, 0.95, 0.99))
    return Times(round(total / below[-1]), p50, p95, p99)


def _percentile(cells: Sequence[int], below: Sequence[int], bounds: Sequence[int], share: float) -> int:
    """The value below which this share of the counts is; `below` are the running sums of the cells."""
    rank = below[-1] * share
    at = bisect_left(below, rank)
    if at == len(bounds):
        return bounds[-1]
    lower = bounds[at - 1] if at else 0
    return round(bounds[at] - (bounds[at] - lower) * (below[at] - rank) / cells[at])

"""The exponent of growth: the slope of log cost over log size. 0 is level, 1 is linear."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from statistics import fmean


def exponent(costs: Mapping[int, float], *, floor: float = 0.0) -> float:
    """The slope of the line through the costs by size that has the least squares.

    `floor` is added to each cost: differences that are small beside it count little. ValueError for fewer than two
    sizes, or a cost of 0 without a floor.
    """
    if len(costs) < 2:
        raise ValueError("growth needs two sizes")
    if floor == 0.0 and min(costs.values()) <= 0:
        raise ValueError("a cost of 0 has no logarithm")
    sizes = [log(size) for size in costs]
    logs = [log(cost + floor) for cost in costs.values()]
    middle, mean = fmean(sizes), fmean(logs)
    spread = sum((size - middle) ** 2 for size in sizes)
    return sum((size - middle) * (one - mean) for size, one in zip(sizes, logs, strict=True)) / spread

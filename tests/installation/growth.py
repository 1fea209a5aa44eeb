"""What grows between a small and a large installation, and by which exponent."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.installation.exponents import exponent
from tests.installation.counts import FLOORS, Counts

LEVEL = 0.18  # 5,000 accounts instead of 100 may double a cost: a first page has links to others, and so on
Costs = Mapping[str, Counts]


def growth(costs: Mapping[int, Costs]) -> dict[str, float]:
    """The requests whose costs grow, each with its largest exponent. A request at one size only is a KeyError."""
    names = {name for found in costs.values() for name in found}
    largest = {name: exponent_of({size: found[name] for size, found in costs.items()}) for name in sorted(names)}
    return {name: round(one, 2) for name, one in largest.items() if one > LEVEL}


def exponent_of(counts: Mapping[int, Counts]) -> float:
    """The largest exponent of the counts by size."""
    return max(
        exponent({size: getattr(one, field) for size, one in counts.items()}, floor=getattr(FLOORS, field))
        for field in Counts.__struct_fields__
    )


def differences(found: Mapping[str, float], allowed: Mapping[str, str]) -> list[str]:
    """What is not as expected, each as a sentence."""
    wrong = [
        f"{name} grows with the installation (exponent {one})" for name, one in found.items() if name not in allowed
    ]
    return wrong + [f"{name} does not grow any more: remove it from ALLOWED" for name in allowed if name not in found]

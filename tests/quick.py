"""What a quick run leaves out beside the slow tests: `pytest -m "not slow"`, as in `tox -e quick`.

It tries fewer random cases. Of a test with many parameters it has only some, which a generator chooses by the name of
the test, so that they are the same in each run; a run that names files or tests has all of theirs. It does not load
the SDKs of vendors, which take seconds in each of its processes. Tests of what a provider sends then check the body
by their own assertions only; a full run also checks it by the SDK's types. `tests.conftest` sets `is_on` before the
tests are imported.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

SHARE = 5
MANY = 20  # cases of one test

is_on = False


def examples(count: int) -> int:
    """How many random cases a test tries: `count`, or a fifth of them in a quick run."""
    return max(1, count // SHARE) if is_on else count


def sample(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """What a quick run has of these tests, in their order, and what it leaves out."""
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = {
        item.nodeid
        for name, cases in by_test.items()
        for item in (cases if len(cases) <= MANY else random.Random(name).sample(cases, max(MANY, len(cases) // SHARE)))
    }
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for cases in by_test.values():
        for item in cases:
            (kept if item.nodeid in chosen else left).append(item)
    return kept, left

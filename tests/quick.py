"""What a quick run leaves out beside the slow tests: `pytest -m "not slow"`, as in `tox -e quick`.

It tries fewer random cases. Of a test with many parameters it has only some, which a generator chooses by the name of
the test, so that they are the same in each run; a run that names files or tests has all of theirs. It does not load
the SDKs of vendors, which take seconds in each of its processes. Tests of what a provider sends then check the body
by their own assertions only; a full run also checks it by the SDK's types. `tests.conftest` sets `is_on` before the
tests are imported.

A test with more cases than the environment variable TESTS_CASES says has only some of them. tox sets it to 5 on Python
3.12 and 3.13, because no line of the gateway depends on the version of Python. TESTS_EVERY leaves out whole tests: with
2, half of them, chosen by their names; TESTS_TURN says which ones. tox gives one half to 3.12 and the other one to
3.13, because 3.11 has all tests.

`pytest -m slow`, as in `tox -e slow`, has the rest: the slow tests, the other cases, and once more those tests that try
less in a quick run.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Iterable

import pytest

SHARE = 5
MANY = int(os.environ.get("TESTS_CASES", "20"))  # cases of one test
EVERY = int(os.environ.get("TESTS_EVERY", "1"))  # test is run: 1 for each one
TURN = int(os.environ.get("TESTS_TURN", "0"))  # below EVERY

is_on = False


def examples(count: int) -> int:
    """How many random cases a test tries: `count`, or a fifth of them in a quick run."""
    return max(1, count // SHARE) if is_on else count


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The cases and tests that a quick run does not have."""
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: list[pytest.Item] = []
    for name, cases in by_test.items():
        if zlib.crc32(name.encode()) % EVERY != TURN:
            left += cases
        elif len(cases) > MANY:
            kept = {item.nodeid for item in random.Random(name).sample(cases, max(MANY, len(cases) // SHARE))}
            left += (item for item in cases if item.nodeid not in kept)
    return left


def tries_less(item: pytest.Item) -> bool:
    """Whether a quick run tries fewer random cases of this test, or has no SDK for it."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return True
    names = vars(getattr(item, "module", object)).values()
    return any(value is examples or getattr(value, "__name__", "") == __name__ for value in names)

"""Nothing that a person waits for grows with the installation: every page and every route, at 100 and 5,000 accounts.

What is compared are counts, so a run on a busy machine finds the same. A new page or route is asked for, too, and fails
if it grows. One account has as many keys, members and calls as there are accounts, and one person as many accounts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.installation.size import WIDE, Size
from tests.installation.counts import Counts
from tests.installation.expected import ALLOWED, JOBS
from tests.installation.growth import differences, growth
from tests.installation.installed import installed
from tests.installation.walk import walk

SMALL = Size(100, least_models=120)  # more than a page has: a page that is not full would seem to grow
LARGE = Size(5_000)
LEVEL = Counts(commands=20, store_bytes=900, statements=8, sql_steps=5, sent=5_000)
GROWN = Counts(commands=20, store_bytes=900, statements=8, sql_steps=500, sent=5_000)


@pytest.mark.slow
async def test_no_page_and_no_route_grows_with_the_installation(valkey: Path, tmp_path: Path) -> None:
    costs = {}
    for size in (SMALL, LARGE):
        folder = tmp_path / str(size.accounts)
        folder.mkdir()
        async with installed(size, valkey, folder) as at:
            costs[size.accounts] = await walk(at, WIDE)
    assert differences(growth(costs), ALLOWED) == []
    assert JOBS.keys() & costs[SMALL.accounts].keys() == set()


def test_one_count_that_grows_is_growth() -> None:
    assert growth({100: {"a": LEVEL, "b": LEVEL}, 5_000: {"a": LEVEL, "b": GROWN}}) == {"b": 0.78}


def test_request_that_begins_to_grow_is_named() -> None:
    assert differences({"a": 0.78}, {}) == ["a grows with the installation (exponent 0.78)"]
    assert differences({"a": 0.78}, {"a": "an export"}) == []


def test_expectation_that_is_mended_has_to_be_removed() -> None:
    assert differences({}, {"a": "an export"}) == ["a does not grow any more: remove it from ALLOWED"]

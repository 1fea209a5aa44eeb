"""The figures in the text of docs/scaling.md follow from the measured costs and from the code."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from benchmarks.costs import FILE, Costs
from benchmarks.scale import LARGE, page_table
from gateway.inference.active_calls import RENEW_EVERY
from gateway.ledger.ledger import RENEWALS, SWEEP

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
TEXT = re.sub(r"\s+", " ", re.sub(r"<!--.*?-->", "", PAGE))
COSTS = msgspec.json.decode(FILE.read_bytes(), type=Costs)
CALLS = 1000 * 86_400  # of a day with 1,000 requests a second
GIB = 1 << 30


@pytest.mark.holds("scaling.md#costs-3", "scaling.md#costs-4")
@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"a day of lines takes about (\d+) GiB", COSTS.line_memory * CALLS / GIB),
        (r"a day of markers about (\d+)\.", COSTS.marker_memory * CALLS / GIB),
        (r"about twelve calls share each script()", 2 / COSTS.scripts_per_request),
    ],
)
def test_figures_in_the_text_follow_from_the_measured_costs(pattern: str, value: float) -> None:
    [figure] = re.findall(pattern, TEXT)
    assert round(value) == int(figure or 12)


@pytest.mark.holds("scaling.md#limits-6")
def test_one_account_gets_more_than_twice_the_calls_of_many_accounts_by_the_measured_costs() -> None:
    assert "serves more than twice as many calls of one account as of many" in TEXT
    assert COSTS.store_cpu_per_request_spread > 2 * COSTS.store_cpu_per_request


@pytest.mark.holds("scaling.md#costs-5")
def test_figures_of_the_work_beside_requests_are_those_of_the_code() -> None:
    assert f"checks about {SWEEP} accounts" in TEXT
    assert f"up to {RENEWALS} per script" in TEXT
    assert "Every five seconds" in TEXT
    assert RENEW_EVERY == 5.0


def test_tables_of_the_large_site_follow_from_the_measured_costs() -> None:
    assert page_table(LARGE, COSTS) in PAGE

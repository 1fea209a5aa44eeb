"""`python -m benchmarks scale` multiplies a load by the measured costs."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from benchmarks.costs import FILE, Costs
from benchmarks.scale import Limit, Need, Site, limits, needs

COSTS = structs.replace(
    msgspec.json.decode(FILE.read_bytes(), type=Costs),
    cpu_per_request=50.0,
    cpu_per_request_spread=100.0,
    cpu_per_chunk=25.0,
    store_cpu_per_request=40.0,
    store_cpu_per_request_spread=100.0,
    importer_cpu_per_line=50.0,
    line_memory=400,
    compact_line_memory=200,
    postgres_line=1024,
)
SITE = Site(
    requests=1000, streams=1000, chunks=20, accounts=1000, keys=3, largest=0.5, hours=48, compact=False, kept=30,
    database=8, load=0.5, cores=4, memory=1e6,
)  # fmt: skip


def needs_of(**changes: float) -> dict[str, Need]:
    return {need.what: need for need in needs(structs.replace(SITE, **changes), COSTS)}


@pytest.mark.holds("scaling.md#scaling-required-hardware-and-limits-2")
def test_cores_servers_memory_and_disk_are_named_each_with_its_reason() -> None:
    found = needs_of()
    assert {"gateway cores", "gateway memory", "store servers", "store memory", "append-only file"} <= found.keys()
    assert all(need.amount and need.because for need in found.values())


@pytest.mark.holds("scaling.md#scaling-required-hardware-and-limits-2")
@pytest.mark.parametrize(("changes", "cores"), [({}, "2"), ({"requests": 10_000}, "3"), ({"streams": 2000}, "3")])
def test_cores_are_those_of_requests_and_chunks_at_the_allowed_load(changes: dict[str, float], cores: str) -> None:
    assert needs_of(**changes)["gateway cores"].amount == cores


@pytest.mark.holds("scaling.md#costs-3")
def test_store_servers_follow_from_the_cost_of_calls_of_many_accounts_and_the_largest_account_from_its_own() -> None:
    found = needs_of(requests=12_000)
    assert found["store servers"].amount == "3"  # one carries 5,000 requests a second at half a core
    assert found["largest account"].because.startswith("fits")  # 6,000 of 12,500
    assert "does NOT fit" in needs_of(requests=30_000)["largest account"].because


def limits_of(**changes: float) -> list[Limit]:
    return limits(structs.replace(SITE, **changes), COSTS)


def test_memory_of_lines_follows_from_their_hours_and_their_form() -> None:
    def lines(**changes: float) -> str:
        return needs_of(**changes)["store memory"].because.partition(" ledger lines")[0]

    assert lines() == "64.4 GiB"
    assert lines(compact=True) == "32.2 GiB"
    assert lines(compact=True, hours=24) == "16.1 GiB"


def test_database_grows_by_the_bytes_of_a_line_until_lines_are_too_old() -> None:
    found = needs_of()
    assert found["database growth"].amount == "82.4 GiB/day"
    assert found["database at last"].amount == "2.4 TiB"


@pytest.mark.holds("scaling.md#scaling-required-hardware-and-limits-2")
def test_limits_that_more_machines_do_not_move_are_named_the_lowest_first() -> None:
    assert [(limit.what, round(limit.requests)) for limit in limits_of()] == [
        ("the database's disk", 3314),
        ("the importer", 10_000),
        ("the largest account", 25_000),
    ]
    assert [limit.what for limit in limits_of(kept=2, largest=0)] == ["the importer", "the database's disk"]

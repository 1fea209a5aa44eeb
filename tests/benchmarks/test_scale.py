"""`python -m benchmarks scale` multiplies a load by the measured costs."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from benchmarks.costs import FILE, Costs
from benchmarks.scale import Need, Site, needs

COSTS = structs.replace(
    msgspec.json.decode(FILE.read_bytes(), type=Costs),
    cpu_per_request=50.0,
    cpu_per_request_spread=100.0,
    cpu_per_chunk=25.0,
    store_cpu_per_request=40.0,
    store_cpu_per_request_spread=100.0,
)
SITE = Site(
    requests=1000, streams=1000, chunks=20, accounts=1000, keys=3, largest=0.5, days=2, load=0.5, cores=4, memory=1e6
)


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

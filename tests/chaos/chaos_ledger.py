"""The ledger's rows of the fault table that need a store only, in full size; each prints the figure it reached.

`tox -e chaos`, or `python -m pytest -s tests/chaos/chaos_ledger.py`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.ledger import storms
from tests.ledger.test_state_machine import walk
from tests.world import OpenWorld


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """These run for minutes."""
    monkeypatch.setenv("ASYNC_TEST_TIMEOUT", "900")


def figure(text: str, started: float) -> None:
    """Tell what was reached."""
    print(f"\n{text}, in {time.monotonic() - started:.1f} s")


def test_balance_for_a_hundred_admits_exactly_a_hundred_of_a_thousand(world: OpenWorld) -> None:
    started = time.monotonic()
    admitted = [asyncio.run(storms.overdraw(world, asks=1000, fits=100)) for _ in range(20)]
    figure(
        f"1,000 concurrent asks on a balance for 100, {len(admitted)} times: admitted {sorted(set(admitted))}", started
    )
    assert admitted == [100] * 20


def test_hundred_thousand_steps_agree_with_the_model(world: OpenWorld) -> None:
    started = time.monotonic()
    steps = walk(world, steps=100_000)
    figure(f"{steps:,} steps of the state machine: 0 divergence", started)
    assert steps >= 100_000


def test_ten_thousand_mixed_calls_sum_to_prices_times_usage(world: OpenWorld) -> None:
    started = time.monotonic()
    fates = asyncio.run(storms.mixed_calls(world, calls=10_000))
    figure(f"{fates.total():,} mixed calls {dict(fates)}: difference 0 nano-units", started)
    assert fates.total() == 10_000


def test_store_killed_under_eight_writers_and_cut_at_random_bytes(tmp_path: Path) -> None:
    async def storm() -> None:
        started = time.monotonic()
        writers = storms.Writers(tmp_path)
        await writers.storm(kills=8, between=30, pause=1.0)
        assert writers.deaths == 8
        figure(f"kill -9 of the store 8 times under 8 writers: 0 of {writers.settled:,} settlements lost", started)
        started = time.monotonic()
        clean = await writers.cut(times=25)
        figure(f"append-only file cut at a random byte: audit clean {clean} of 25, 0 lost after the replay", started)
        assert clean == 25

    asyncio.run(storm())

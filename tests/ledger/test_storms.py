"""Small storms for every run; tests/chaos/chaos_ledger.py has them in full size."""

from tests.ledger import storms


async def test_balance_for_twenty_admits_twenty_of_two_hundred_at_once(world):
    for _ in range(2):
        assert await storms.overdraw(world, asks=200, fits=20) == 20


async def test_ledger_of_mixed_calls_equals_prices_times_usage_to_the_nano_unit(world):
    fates = await storms.mixed_calls(world, calls=400)
    assert len(fates) == 7
    assert fates.total() == 400

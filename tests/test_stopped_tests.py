"""A test that is stopped says where it waited."""

from __future__ import annotations

import asyncio

import pytest

from tests.polling import turns, until
from tests.stopped_tests import says_where


async def waits(value: bool) -> None:
    await until(lambda: value)


async def test_stopped_test_fails_with_the_places_at_which_it_waited() -> None:
    task = asyncio.ensure_future(says_where(waits)(value=False))
    await turns()
    task.cancel()
    with pytest.raises(
        AssertionError, match=r"waited at test_stopped_tests.py:\d+ \(waits\) > polling.py:\d+ \(until\)$"
    ):
        await task


async def test_test_that_ends_or_fails_is_as_it_was() -> None:
    await says_where(waits)(value=True)

    async def fails() -> None:
        raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        await says_where(fails)()

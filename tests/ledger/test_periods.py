"""Periods have the same names in Python and in the scripts, and begin when the name changes."""

from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.ledger.periods import Every, period_of, start_of
from gateway.store.command import Script

PERIOD = (resources.files("gateway.ledger") / "lua" / "period.lua").read_text(encoding="utf-8")
MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))
STEP = timedelta(seconds=1)


@pytest.mark.parametrize("every", get_args(Every))
@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(moment=MOMENTS)
@example(moment=datetime(2000, 2, 29, tzinfo=UTC))
@example(moment=datetime(2100, 2, 28, 23, 59, 59, tzinfo=UTC))
@example(moment=datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC))
def test_period_lasts_from_its_start_until_the_next_one(every: Every, moment: datetime) -> None:
    period = period_of(every, moment)
    start = start_of(period)
    assert start <= moment
    assert period_of(every, start) == period != period_of(every, start - STEP)
    assert start.hour == start.minute == start.second == 0
    assert start.weekday() == 0 or every != "week"
    assert start.day == 1 or every != "month"


async def test_scripts_name_periods_as_python_does(world: Any) -> None:
    script = Script(
        PERIOD + "local names = {} for i = 2, #ARGV do names[i - 1] = period_of(ARGV[1], ARGV[i]) end return names"
    )
    moments = [datetime(1999, 12, 28, tzinfo=UTC) + timedelta(hours=n) for n in range(0, 24 * 366 * 5, 7)]
    moments += [datetime(year, month, 1, tzinfo=UTC) + step for year in range(1971, 2200) for month in range(1, 13)
                for step in (-STEP, timedelta())]  # fmt: skip
    async with world() as w:
        link = w.store.link("{a:acme}")
        for every in get_args(Every):
            for start in range(0, len(moments), 1000):
                page = moments[start : start + 1000]
                found = await link.eval(script, ["{a:acme}"], [every, *(int(moment.timestamp()) for moment in page)])
                assert [name.decode() for name in found] == [period_of(every, moment) for moment in page]

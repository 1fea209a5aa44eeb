"""Credits and debits are summed by hour over all accounts, in the transaction of their lines."""

from __future__ import annotations

import sqlalchemy as sa

from gateway.database.engine import Database
from gateway.database.tables import money_site_hourly
from gateway.history.forks import _supersede
from gateway.history.rollups import rebuild_rollups
from gateway.history.site_money import Movement, read_movements
from tests.history.made_lines import Account, moment


def moved(database: Database, since: str, until: str) -> list[Movement]:
    begin, end = (int(moment(text).timestamp()) * 1_000_000 for text in (since, until))
    with database.reading() as connection:
        return read_movements(connection, begin, end)


def filled(database: Database) -> list[Account]:
    accounts = [Account(database, name) for name in ("acme", "other")]
    for account in accounts:
        account.line("2026-10-01T09:30", "open", 7)
        account.line("2026-10-01T10:10", "topup", 100)
        account.line("2026-10-01T10:59", "topup", -30)
        account.call("2026-10-01T10:15", 5)
        account.line("2026-10-01T10:20", "refund", 5, key="key_1", model="m")
        account.flush()
    return accounts


def test_credits_and_debits_of_all_accounts_are_summed_by_kind_without_calls(database: Database) -> None:
    filled(database)
    assert moved(database, "2026-10-01T10:30", "2026-10-01T11:00") == [Movement("topup", 4, 200, 60)]
    assert moved(database, "2026-10-01T09:00", "2026-10-01T10:00") == [Movement("open", 2, 14, 0)]
    assert moved(database, "2026-10-01T11:00", "2026-10-02T00:00") == []


def test_sums_are_the_same_after_they_were_computed_again_from_the_lines(database: Database) -> None:
    filled(database)
    before = moved(database, "2026-10-01T00:00", "2026-10-02T00:00")
    with database.writing() as connection:
        connection.execute(money_site_hourly.update().values(credits=1))
    rebuild_rollups(database)
    assert moved(database, "2026-10-01T00:00", "2026-10-02T00:00") == before


def test_lines_that_the_store_has_lost_are_subtracted(database: Database) -> None:
    first = filled(database)[0]
    assert first._state is not None
    _supersede(database, first._state, 1)
    found = moved(database, "2026-10-01T00:00", "2026-10-02T00:00")
    assert found == [Movement("open", 2, 14, 0), Movement("topup", 2, 100, 30)]


def test_sums_of_the_site_have_few_rows_however_many_accounts_there_are(database: Database) -> None:
    for number in range(30):
        account = Account(database, f"acc-{number}")
        account.line("2026-10-01T09:30", "topup", 7)
        account.flush()
    with database.reading() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(money_site_hourly)) == 1

"""The usage that a key sees."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.times import to_micros
from gateway.admin.transactions import Transactions
from gateway.database.engine import Database
from gateway.errors import InvalidValue
from gateway.history.sql_thread import SqlThread
from gateway.history.usage_question import ReceiptQuestion, UsageQuestion
from gateway.reports import key_usage as module
from gateway.reports.key_usage import key_receipt, key_usage
from gateway.reports.reports import Reports
from tests.history.made_lines import Account, moment


@pytest.fixture
def reports(database: Database, sql: SqlThread) -> Reports:
    for name in ("acme", "other"):
        account = Account(database, name)
        account.call("2026-10-05T10:30", 500, outcome="ok", user="usr_1", key="key_1")
        account.call("2026-10-05T11:30", 70, outcome="ok", user="usr_2", key="key_2", session="agent-7")
        account.call("2026-10-06T11:30", 1, outcome="ok", key="key_3")
        account.flush()
    return Reports(Transactions(database, sql))


async def usage(
    reports: Reports, *, user: str = "", group_by: tuple[str, ...] = ("day",), session: str = ""
) -> dict[str, Any]:
    since, until = to_micros(moment("2026-10-01")), to_micros(moment("2026-11-01"))
    return await key_usage(reports, UsageQuestion("acme", "key_1", user, since, until, group_by, "USD", session))


async def test_service_key_sees_its_account_and_a_members_key_its_user(reports: Reports) -> None:
    whole, own = await usage(reports), await usage(reports, user="usr_1")
    assert (whole["object"], whole["account"], whole["currency"]) == ("usage", "acme", "USD")
    assert [(row["day"], row["amount"]) for row in whole["data"]] == [
        ("2026-10-05", "0.00000057"),
        ("2026-10-06", "0.000000001"),
    ]
    assert [(row["day"], row["amount"]) for row in own["data"]] == [("2026-10-05", "0.0000005")]
    assert (await usage(reports, user="usr_9"))["total"]["calls"] == 0


@pytest.mark.holds("api.md#sessions-4")
async def test_usage_of_a_session_is_of_its_calls_in_the_own_account(reports: Reports) -> None:
    found = await usage(reports, session="agent-7", group_by=("day", "key"))
    assert [(row["day"], row["key"], row["amount"], row["calls"]) for row in found["data"]] == [
        ("2026-10-05", "key_2", "0.00000007", 1)
    ]
    assert (await usage(reports, session="agent-7", user="usr_1"))["data"] == []
    assert (await usage(reports, session="agent-8"))["total"]["calls"] == 0


async def test_too_many_rows_are_refused(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    with pytest.raises(InvalidValue, match="more than 1 rows"):
        await usage(reports)


@pytest.mark.holds("api.md#get-v1-usage-1")
async def test_receipt_is_of_the_keys_own_call_with_all_its_lines(database: Database, sql: SqlThread) -> None:
    account, transactions = Account(database), Transactions(database, sql)
    request = account.call("2026-10-05T10:30", 500, key="key_1", kind="reclaim", tags={"team": "search"})
    account.call("2026-10-05T10:31", 70, key="key_1", kind="adj", request_id=request)
    account.flush()
    found = await key_receipt(transactions, ReceiptQuestion("acme", "key_1", request))
    assert found is not None
    assert (found.line.kind, found.cost, found.line.n) == ("adj", 570, 2)
    for other in (("acme", "key_2", request), ("other", "key_1", request), ("acme", "key_1", "req_none")):
        assert await key_receipt(transactions, ReceiptQuestion(*other)) is None

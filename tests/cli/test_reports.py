"""Reports, statements, pages of lines and single calls on the command line."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.amounts import NANO
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ids import Ids
from gateway.ledger.price_tables import store_prices
from gateway.store import Store
from tests.cli.conftest import Terminal, on_store
from tests.cli.test_history_commands import import_all
from tests.ledger.records import quote_of, record_of
from tests.world import World

PRICE = Price(version="v1", input=1_000_000)
MONTH = timedelta(days=40)
ANSWERS = (AttemptAnswer("first", "m", "slow_down", 429, 12), AttemptAnswer("p", "m", "ok", 200, 340))


@pytest.fixture
def history(terminal: Terminal, valkey: Path) -> Terminal:
    """Ten lines: an opening and six charges forty days ago, and three charges now; imported."""

    async def work(store: Store) -> None:
        world = World(store, {})
        await store_prices(store, [PRICE])
        key = await world.caller("acme", balance=10 * NANO)
        for number in range(9):
            hold = await world.ledger.admit(f"req_{number:032x}", key, quote_of(version="v1"))
            record = record_of(number + 1, usage=Usage(in_text=number + 1), provider="p", outcome="ok")
            if number == 5:
                record = structs.replace(record, attempts=2, answers=ANSWERS)
            world.ledger.book(hold, record)
        await world.ledger.drain()
        client: Any = store.client
        entries = await client.xrange("{a:acme}:lg")
        await client.delete("{a:acme}:lg")
        for place, (id_, fields) in enumerate(entries):
            ms, _, step = id_.decode().partition("-")
            back = MONTH // timedelta(milliseconds=1) if place < 7 else 0
            await client.xadd("{a:acme}:lg", fields, id=f"{int(ms) - back}-{step}")

    on_store(valkey, work)
    import_all(terminal, valkey)
    return terminal


def test_report_is_a_table_a_file_or_a_document(history: Terminal) -> None:
    words = ("report", "--from", "60d", "--group-by", "model,outcome")
    document = history.json(*words)
    (row,) = document["rows"]
    assert (row["model"], row["outcome"], row["calls"], row["amount"]) == ("m", "ok", 9, "0.000000045")
    assert document["total"]["usage"] == {"in_text": 45}
    (record,) = csv.DictReader(io.StringIO(history.ok(*words, "--format", "csv")))
    assert (record["model"], record["calls"], record["in_text"], record["amount"]) == ("m", "9", "45", "0.000000045")
    assert [line.split()[0] for line in history.ok(*words).splitlines()] == ["model", "m", "total"]
    keys = history.ok("report", "--from", "60d", "--group-by", "key", "--limit", "1")
    assert [line.split()[0].partition("_")[0] for line in keys.splitlines()] == ["key", "key", "others", "total"]
    months = history.json("report", "--from", "60d", "--group-by", "month")["rows"]
    assert sum(month["calls"] for month in months) == 9
    assert history.json("report", "--from", "1d", "--account", "acme,other")["total"]["calls"] == 3
    assert history.json("report", "--from", "1d", "--account", "other")["rows"] == []


def test_report_without_a_database_or_with_a_wrong_group_is_refused(history: Terminal, tmp_path: Path) -> None:
    assert "nothing to group by; known: account" in history.refused("report", "--group-by", "colour")
    for file in (tmp_path / "var").glob("gateway.db*"):
        file.unlink()
    assert "there is no database yet" in history.refused("report")


def test_statement_is_printed_in_each_form_and_is_final_after_the_month(history: Terminal) -> None:
    month = (datetime.now(UTC) - MONTH).strftime("%Y-%m")
    words = ("accounts", "statement", "acme", "--month", month)
    document = history.json(*words)
    assert (document["status"], document["number"], document["closing_balance"]) == ("final", 1, "9.999999979")
    assert document["charged"][0]["amount"] == "0.000000021"
    assert history.ok(*words, "--csv").splitlines()[-1].endswith(",9.999999979,")
    assert history.ok(*words, "--html").startswith("<!DOCTYPE html>")
    assert "closing_balance  9.999999979" in history.ok(*words)
    assert "no month such as" in history.refused("accounts", "statement", "acme", "--month", "May")
    result = history.run("accounts", "statement", "acme", "--month", datetime.now(UTC).strftime("%Y-%m"))
    assert "preliminary" in result.stderr


def test_pages_lead_from_the_newest_line_to_the_first(history: Terminal) -> None:
    all_lines = history.json("usage", "acme")
    first = history.json("usage", "acme", "--limit", "4")
    second = history.json("usage", "list", "acme", "--limit", "6", "--before", first["next_cursor"])
    assert second["next_cursor"] is None
    assert first["data"] + second["data"] == all_lines[::-1]
    assert f"--before {first['next_cursor']}" in history.run("usage", "acme", "--limit", "4").stderr
    history.refused("usage", "acme", "--before", "1.1-1", status=2)
    history.refused("usage", "acme", "--limit", "4", "--since", "1d", status=2)


def test_call_is_shown_with_what_it_was_charged_for(history: Terminal) -> None:
    document = history.json("usage", "show", f"req_{4:032x}")
    assert (document["account"], document["amount"], document["cost"]["total"]) == (
        "acme",
        "0.000000005",
        "0.000000005",
    )
    assert [(item["bucket"], item["count"]) for item in document["cost"]["items"]] == [("in_text", "5")]
    text = history.ok("usage", "show", f"req_{4:032x}")
    assert "in_text  5" in text
    assert document["answers"] == [] and "provider  code" not in text
    assert "There is no settled request 'nobody'" in history.refused("usage", "show", "nobody")


def test_call_is_shown_by_the_id_that_its_client_saw(history: Terminal) -> None:
    request_id = f"req_{4:032x}"
    shown = Ids().completion_id(request_id)
    for words in ((), ("--account", "acme")):
        assert history.json("usage", "show", shown, *words)["request_id"] == request_id
    history.ok("accounts", "refund", "acme", shown)
    assert history.json("usage", "show", shown)["refunded"] == "0.000000005"


def test_call_of_several_attempts_is_shown_with_what_each_answered(history: Terminal) -> None:
    document = history.json("usage", "show", f"req_{5:032x}")
    assert [tuple(answer.values()) for answer in document["answers"]] == [
        ("first", "m", "slow_down", 429, 12), ("p", "m", "ok", 200, 340)
    ]  # fmt: skip
    rows = [line.split() for line in history.ok("usage", "show", f"req_{5:032x}").splitlines()]
    at = rows.index(["model", "provider", "code", "status", "ms"])
    assert rows[at + 1 : at + 3] == [["m", "first", "slow_down", "429", "12"], ["m", "p", "ok", "200", "340"]]

"""Writes that move money: once per Idempotency-Key, whatever is repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.database.tables import superseded_lines
from gateway.ledger.import_hints import DATABASE
from tests.admin_api.both_databases import database_address, database_url
from tests.admin_api.samples import UNIT, Samples

__all__ = ["database_address", "database_url"]

CREDITS, REFUNDS = "/accounts/acme/credits", "/accounts/acme/refunds"


async def balance(a) -> str:
    return (await a.get("/accounts/acme"))["balance"]


@pytest.mark.holds("admin-api.md#money-1", "security.md#money-1")
async def test_repeated_credit_answers_the_same_and_moves_money_once(api) -> None:
    async with api() as a:
        await a.as_operator()
        body, headers = {"amount": "12.5", "note": "invoice 7"}, {"Idempotency-Key": "evt_1"}
        answers = await asyncio.gather(*(a.ask("POST", CREDITS, body, headers=headers) for _ in range(5)))
        assert {answer.status for answer in answers} == {200}
        assert all(answer.document == answers[0].document for answer in answers)
        replayed = sorted(answer.headers.get("Idempotent-Replayed", "") for answer in answers)
        assert replayed == ["", "true", "true", "true", "true"]
        assert await balance(a) == "12.5"
        lines = (await a.get("/accounts/acme/lines"))["data"]
        assert [(line["kind"], line["amount"], line.get("note")) for line in lines] == [
            ("topup", "12.5", "invoice 7"),
            ("open", "0", None),
        ]
        events = (await a.get("/audit-trail?object=account:acme"))["data"]
        assert [event["action"] for event in events] == ["accounts.credit"]


@pytest.mark.holds("security.md#money-1")
async def test_forty_credits_at_once_of_which_half_are_repeated_move_money_twenty_times(api) -> None:
    async with api() as a:
        await a.as_operator()
        keys = [f"evt_{n % 20}" for n in range(40)]
        sent = (a.ask("POST", CREDITS, {"amount": "0.5"}, headers={"Idempotency-Key": key}) for key in keys)
        answers = await asyncio.gather(*sent)
        assert [answer.status for answer in answers] == [200] * 40
        assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == 20
        assert await balance(a) == "10"
        kinds = [line["kind"] for line in (await a.get("/accounts/acme/lines"))["data"]]
        assert kinds == ["topup"] * 20 + ["open"]
        assert (await a.ask("POST", "/audits", {"account": "acme"})).document["clean"]


@pytest.mark.holds("admin-api.md#money-1")
async def test_another_amount_under_the_same_key_is_refused(api) -> None:
    async with api() as a:
        await a.as_operator()
        await a.post(CREDITS, {"amount": "1"}, key="evt_1")
        for path, body in ((CREDITS, {"amount": "2"}), (REFUNDS, {"request_id": "req_x", "amount": "1"})):
            answer = await a.ask("POST", path, body, headers={"Idempotency-Key": "evt_1"})
            assert answer.status in (400, 404, 409) and "Idempotent-Replayed" not in answer.headers
        assert await balance(a) == "1"


@pytest.mark.holds("admin-api.md#money-1")
async def test_money_needs_an_idempotency_key(api) -> None:
    async with api() as a:
        await a.as_operator()
        for path, body in ((CREDITS, {"amount": "1"}), (REFUNDS, {"request_id": "req_x"})):
            answer = await a.ask("POST", path, body)
            assert (answer.status, answer.error["param"]) == (400, "Idempotency-Key")
            answer = await a.ask("POST", path, body, headers={"Idempotency-Key": "two words"})
            assert (answer.status, answer.error["param"]) == (400, "Idempotency-Key")
        assert await balance(a) == "0"


@pytest.mark.holds("admin-api.md#money-1", "security.md#money-1")
async def test_repeated_refund_answers_the_same_and_gives_back_once(api) -> None:
    async with api() as a:
        await a.as_operator()
        charge = await Samples(a).charge("acme")
        before = await balance(a)
        headers = {"Idempotency-Key": "r1"}
        answers = [await a.ask("POST", REFUNDS, {"request_id": charge}, headers=headers) for _ in range(2)]
        assert [answer.document["amount"] for answer in answers] == ["0.0000005", "0.0000005"]
        assert answers[0].document == answers[1].document
        assert answers[1].headers["Idempotent-Replayed"] == "true"
        assert await balance(a) != before
        again = await a.ask("POST", REFUNDS, {"request_id": charge}, headers={"Idempotency-Key": "r2"})
        assert (again.status, again.error["code"]) == (400, "invalid_value")  # nothing is left of the charge


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-7", "security.md#backups-and-older-stores-2")
async def test_superseded_lines_are_listed_booked_and_acknowledged(api) -> None:
    async with api() as a:
        await a.as_operator()
        database = await a.services.database()
        columns = {"account": "acme", "balance": 0, "uncollected": 0, "late": False, "meta": "", "hash": b"", "at": 0}
        with database.writing() as connection:
            for n in range(1, 6):
                row = {"seq": n, "stream_id": f"{n}-0", "request_id": f"op-{n}", "kind": "topup", "amount": n * UNIT}
                connection.execute(superseded_lines.insert().values(**columns, **row, superseded_at=1))
        assert (await a.ask("GET", "/superseded-lines")).status == 200
        await a.services.store.store.link(DATABASE).call("SET", DATABASE, database.id)
        first = await a.get("/superseded-lines?limit=3")
        rest = await a.get(f"/superseded-lines?limit=3&account=acme&cursor={first['next_cursor']}")
        assert [row["request_id"] for row in first["data"] + rest["data"]] == [f"op-{n}" for n in range(1, 6)]
        assert rest["next_cursor"] is None
        report = (await a.ask("POST", "/audits", {})).document
        assert (report["superseded_lines"], report["clean"]) == (5, False)
        bodies: tuple[dict[str, Any], ...] = ({}, {"all": True, "ids": [1]}, {"ids": [1], "account": "acme"})
        for body in (*bodies, {"ids": []}, {"ids": [0]}):
            assert (await a.ask("POST", "/superseded-lines/book", body)).status == 400, body
        assert (await a.ask("POST", "/superseded-lines/book", {"ids": [99]})).status == 404
        ids = [row["id"] for row in first["data"]]
        done = (await a.ask("POST", "/superseded-lines/book", {"ids": ids})).document
        assert (done["booked"], done["left"], {row["state"] for row in done["lines"]}) == (3, 0, {"booked"})
        again = (await a.ask("POST", "/superseded-lines/book", {"ids": ids})).document
        assert (again["booked"], await balance(a)) == (0, "6")
        closed = await a.ask("POST", "/superseded-lines/acknowledge", {"all": True, "note": "paid back"})
        assert closed.document == {"acknowledged": 2}
        report = (await a.ask("POST", "/audits", {"account": "acme"})).document
        assert (report["superseded_lines"], report["clean"]) == (0, True)
        for scope, status in (("read", 403), ("accounts", 403), ("credits", 200)):
            a.token = await a.make_token(scope)
            assert (await a.ask("POST", "/superseded-lines/book", {"all": True})).status == status

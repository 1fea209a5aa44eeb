"""Writes that move money: once per Idempotency-Key, whatever is repeated."""

from __future__ import annotations

import asyncio

from tests.admin_api.samples import Samples

CREDITS, REFUNDS = "/accounts/acme/credits", "/accounts/acme/refunds"


async def balance(a) -> str:
    return (await a.get("/accounts/acme"))["balance"]


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


async def test_another_amount_under_the_same_key_is_refused(api) -> None:
    async with api() as a:
        await a.as_operator()
        await a.post(CREDITS, {"amount": "1"}, key="evt_1")
        for path, body in ((CREDITS, {"amount": "2"}), (REFUNDS, {"request_id": "req_x", "amount": "1"})):
            answer = await a.ask("POST", path, body, headers={"Idempotency-Key": "evt_1"})
            assert answer.status in (400, 404, 409) and "Idempotent-Replayed" not in answer.headers
        assert await balance(a) == "1"


async def test_money_needs_an_idempotency_key(api) -> None:
    async with api() as a:
        await a.as_operator()
        for path, body in ((CREDITS, {"amount": "1"}), (REFUNDS, {"request_id": "req_x"})):
            answer = await a.ask("POST", path, body)
            assert (answer.status, answer.error["param"]) == (400, "Idempotency-Key")
            answer = await a.ask("POST", path, body, headers={"Idempotency-Key": "two words"})
            assert (answer.status, answer.error["param"]) == (400, "Idempotency-Key")
        assert await balance(a) == "0"


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

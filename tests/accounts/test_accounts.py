"""Accounts: opened once, shown, disabled, allowed and denied models, credited once per operation."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from gateway.accounts.accounts import CHANGED
from gateway.amounts import MAX_AMOUNT
from gateway.errors import AlreadyExists, InvalidValue, NotFound

UNIT = 1_000_000_000


async def test_opening_balance_is_the_first_ledger_line_of_an_account(world):
    async with world() as w:
        account = await w.accounts.create("acme", group="gold", balance=5 * UNIT // 2)
        form = account.json_form()
        created = datetime.fromisoformat(form.pop("created"))
        assert abs(created - datetime.now(UTC)) < timedelta(minutes=1)
        assert form == {
            "name": "acme",
            "group": "gold",
            "state": "active",
            "balance": "2.5",
            "held": "0",
            "allowed": [],
            "denied": [],
            "floor": "0",
            "rpm": None,
            "tpm": None,
            "concurrency": None,
            "monthly": None,
            "month_spent": None,
            "max_session_cost": None,
            "prices": {},
        }
        (line,) = [line async for line in w.ledger.lines("acme")]
        assert (line.n, line.kind, line.amount, line.balance) == (1, "open", 5 * UNIT // 2, 5 * UNIT // 2)
        await w.proved()


async def test_second_account_with_the_same_name_is_refused_even_concurrently(world):
    async with world() as w:
        answers = await asyncio.gather(*(w.accounts.create("acme", balance=n) for n in (1, 2)), return_exceptions=True)
        assert sorted(isinstance(answer, AlreadyExists) for answer in answers) == [False, True]
        assert (await w.accounts.show("acme")).balance == 1
        await w.proved()


@pytest.mark.parametrize("name", ["", "Acme", "-a", "a b", "a}b", "{a:x}", "a:b", "ä", "a\n", "x" * 64, "../x"])
async def test_names_with_path_characters_are_refused(world, name):
    async with world() as w:
        with pytest.raises(InvalidValue):
            await w.accounts.create(name)
        with pytest.raises(InvalidValue):
            await w.accounts.create("fine", group=name)
        with pytest.raises(NotFound):
            await w.accounts.show(name)
        with pytest.raises(InvalidValue):
            await w.accounts.credit(name, 5)
        assert await w.dump() == {}


async def test_accounts_are_listed_by_name(world):
    async with world() as w:
        for name in ("zeta", "acme", "umbra"):
            await w.accounts.create(name)
        assert [account.name for account in await w.accounts.list()] == ["acme", "umbra", "zeta"]


async def test_allow_undoes_deny_and_the_other_way_round(world):
    async with world() as w:
        await w.accounts.create("acme")
        await w.accounts.allow("acme", ["b", "a", "org/m:1"])
        account = await w.accounts.deny("acme", ["a"])
        assert (account.allowed, account.denied) == (["b", "org/m:1"], ["a"])
        account = await w.accounts.allow("acme", ["a"])
        assert (account.allowed, account.denied) == (["a", "b", "org/m:1"], [])


async def test_disabling_is_published_to_running_streams(world):
    async with world() as w, w.store.channel(CHANGED) as channel:
        await w.accounts.create("acme")
        assert (await channel.message(within=60.0))["type"] == "subscribe"
        assert (await w.accounts.disable("acme")).state == "disabled"
        assert (await channel.message(within=60.0))["data"] == b"acme:*"
        assert (await w.accounts.enable("acme")).state == "active"


async def test_credit_with_an_operation_id_is_added_once(world):
    async with world() as w:
        await w.accounts.create("acme", balance=UNIT)
        answers = await asyncio.gather(*(w.accounts.credit("acme", 500, operation="invoice-7") for _ in range(5)))
        assert sorted(answer.status for answer in answers) == ["done"] + ["repeated"] * 4
        assert {answer.balance for answer in answers} == {UNIT + 500}
        with pytest.raises(InvalidValue, match=r"already used, for 0\.0000005"):
            await w.accounts.credit("acme", 501, operation="invoice-7")
        await w.accounts.credit("acme", 500)
        await w.accounts.credit("acme", 500)
        assert (await w.accounts.show("acme")).balance == UNIT + 1500
        lines = [(line.kind, line.request_id) async for line in w.ledger.lines("acme")]
        assert lines[1] == ("topup", "invoice-7")
        await w.proved()


@pytest.mark.parametrize(
    ("amount", "wish", "reason"),
    [
        (0, {}, "changes nothing"),
        (-1, {}, "--allow-negative"),
        (MAX_AMOUNT, {}, "cannot pass 9000000"),
        (1, {"operation": ""}, "operation id"),
        (1, {"operation": "a b"}, "operation id"),
        (1, {"operation": "x" * 129}, "operation id"),
    ],
)
async def test_refused_credit_changes_nothing(world, amount, wish, reason):
    async with world() as w:
        await w.accounts.create("acme", balance=1)
        before = await w.dump()
        with pytest.raises(InvalidValue, match=reason):
            await w.accounts.credit("acme", amount, **wish)
        assert await w.dump() == before


async def test_negative_credit_is_an_adjustment_if_allowed(world):
    async with world() as w:
        await w.accounts.create("acme", balance=10)
        assert (await w.accounts.credit("acme", -4, allow_negative=True)).balance == 6
        assert [line.kind async for line in w.ledger.lines("acme")] == ["open", "adj"]
        await w.proved()


async def test_balance_can_reach_its_exact_bound(world):
    async with world() as w:
        await w.accounts.create("acme", balance=MAX_AMOUNT - 1)
        assert (await w.accounts.credit("acme", 1)).balance == MAX_AMOUNT
        with pytest.raises(InvalidValue):
            await w.accounts.credit("acme", 1)
        with pytest.raises(InvalidValue):
            await w.accounts.create("umbra", balance=MAX_AMOUNT + 1)
        await w.proved()


async def test_unknown_account_is_refused(world):
    async with world() as w:
        for wish in (w.accounts.show("acme"), w.accounts.credit("acme", 5), w.accounts.disable("acme")):
            with pytest.raises(NotFound, match="no account 'acme'"):
                await wish
        assert await w.dump() == {}

"""A field of one account or key that cannot be read hides no other account or key, and can be replaced."""

from __future__ import annotations

import asyncio

import pytest

from gateway.admin.account_limits import AccountLimits
from gateway.ledger.api_key import ApiKey
from gateway.ledger.periods import Every
from gateway.store.links import slot
from tests.ledger.records import quote_of
from tests.world import OpenWorld, World

VALUES = {"a word": b"abc", "not UTF-8": b"\xff", "empty": b"", "a fraction": b"1.5.2"}
#: Fields of a key that calls are admitted by.
LIMITS = ("exp", "rpm", "tpm", "conc", "cap", "spent", "held", "base", "max")
KEY_FIELDS = ("exp", "rpm", "tpm", "conc", "cap", "spent", "base", "max", "created", "used", "every", "scopes")
ACCOUNT_FIELDS = ("bal", "held", "floor", "rpm", "tpm", "conc", "mcap", "created")


async def broken_key(w: World, field: str, value: bytes) -> str:
    """A key of acme with this text in its hash; its other fields make admissions read it."""
    every: Every | None = None if field == "base" else "month"  # a new period needs no base
    key_id = (await w.keys.create("acme", budget=5000, max_cost=4000, every=every)).id
    await w.store.client.hset(f"{slot('acme')}:k:{key_id}", field, value)
    return key_id


async def admitted(w: World, key_id: str, number: int) -> bool:
    try:
        await w.ledger.admit(f"req_{number:032x}", ApiKey("acme", key_id), quote_of(100, 10))
    except Exception:
        return False
    return True


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("field", LIMITS)
async def test_calls_of_a_key_with_an_unreadable_limit_are_refused_and_those_of_other_keys_in_the_batch_admitted(
    world: OpenWorld, field: str, value: bytes
) -> None:
    async with world() as w:
        other = await w.caller(balance=10_000)
        broken = await broken_key(w, field, value)
        keys = [other.id, broken, other.id, broken]
        found = await asyncio.gather(*(admitted(w, key_id, number) for number, key_id in enumerate(keys)))
        assert found == [True, False, True, False]
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000, 200)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
async def test_last_use_of_a_key_that_cannot_be_read_is_noted_anew(world: OpenWorld, value: bytes) -> None:
    async with world() as w:
        other = await w.caller(balance=10_000)
        broken = await broken_key(w, "used", value)
        keys = [other.id, broken]
        assert await asyncio.gather(*(admitted(w, key_id, number) for number, key_id in enumerate(keys))) == [
            True,
            True,
        ]
        assert (await w.keys.show(broken)).last_used is not None
        assert (await w.keys.show(broken)).state == "active"
        await w.proved()


async def test_scopes_that_are_no_text_refuse_the_calls_of_their_key_alone(world: OpenWorld) -> None:
    async with world() as w:
        other = await w.caller(balance=10_000)
        broken = await broken_key(w, "scopes", b"\xff")
        keys = [broken, other.id]
        assert await asyncio.gather(*(admitted(w, key_id, number) for number, key_id in enumerate(keys))) == [
            False,
            True,
        ]


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("field", KEY_FIELDS)
async def test_key_with_an_unreadable_field_is_listed_as_such_beside_the_others_and_revoked(
    world: OpenWorld, field: str, value: bytes
) -> None:
    async with world() as w:
        other = await w.caller(balance=10_000)
        broken = await broken_key(w, field, value)
        states = {key.id: key.state for key in await w.keys.list()}
        # An empty text has no scopes, and a text without a range of addresses is readable.
        expected = "active" if field == "scopes" else "unreadable"
        assert states == {other.id: "active", broken: expected}
        assert (await w.keys.show(broken)).state == expected
        assert (await w.keys.revoke(broken)).state == "revoked"


async def test_unreadable_addresses_of_a_key_make_it_unreadable(world: OpenWorld) -> None:
    async with world() as w:
        await w.caller()
        broken = await broken_key(w, "scopes", b"|10.0.0.0/99")
        assert (await w.keys.show(broken)).state == "unreadable"


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
async def test_limit_of_a_key_is_set_over_one_that_cannot_be_read(world: OpenWorld, value: bytes) -> None:
    async with world() as w:
        await w.caller(balance=10_000)
        broken = await broken_key(w, "rpm", value)
        assert not await admitted(w, broken, 1)
        changed = await w.edit_key(broken, rpm=5)
        assert (changed.state, changed.rpm) == ("active", 5)
        assert await admitted(w, broken, 2)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("field", ACCOUNT_FIELDS)
async def test_account_with_an_unreadable_field_is_listed_as_such_beside_the_others(
    world: OpenWorld, field: str, value: bytes
) -> None:
    async with world() as w:
        await w.caller()
        await w.accounts.create("other", balance=7)
        await w.store.client.hset(slot("acme"), field, value)
        expected = [("acme", "unreadable"), ("other", "active")]
        assert [(account.name, account.state) for account in await w.accounts.list()] == expected
        assert [(account.name, account.state) for account in await w.accounts.page(limit=5)] == expected
        assert (await w.accounts.disable("acme")).state == "disabled"


async def test_limit_of_an_account_is_set_over_one_that_cannot_be_read(world: OpenWorld) -> None:
    async with world() as w:
        await w.caller()
        await w.store.client.hset(slot("acme"), "rpm", b"abc")
        await AccountLimits(w.store, w.accounts).change("acme", rpm=5)
        account = await w.accounts.show("acme")
        assert (account.state, account.rpm) == ("active", 5)

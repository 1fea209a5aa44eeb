"""Keys: shown once, kept as fingerprints, listed without secrets, revoked for good."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gateway import errors
from gateway.accounts.accounts import CHANGED
from gateway.errors import InvalidValue, NotFound
from tests.polling import until

UNIT = 1_000_000_000


async def test_key_has_256_random_bits_and_its_text_is_not_stored(world):
    async with world() as w:
        await w.accounts.create("acme")
        new = await w.keys.create("acme", name="ci")
        assert new.text.startswith("sk-")
        assert len(new.text) == 46
        await w.admit(await w.auth.authenticate(new.text), 0)
        stored = await w.text()
        assert new.id in stored
        assert new.text not in stored
        assert new.text[3:] not in stored
        assert new.text not in repr(new)
        assert new.json_form() == {"key": new.text, "id": new.id, "account": "acme", "name": "ci"}


async def test_record_has_everything_except_the_secret(world):
    async with world() as w:
        await w.accounts.create("acme")
        expires = datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)
        new = await w.keys.create(
            "acme", name="ci", rpm=5, tpm=600, concurrency=2, models=["m", "n"], budget=3 * UNIT // 2, expires=expires
        )
        (record,) = await w.keys.list()
        form = record.json_form()
        created = datetime.fromisoformat(form.pop("created"))
        assert abs(created - datetime.now(UTC)) < timedelta(minutes=1)
        assert form == {
            "id": new.id,
            "account": "acme",
            "name": "ci",
            "last4": new.text[-4:],
            "state": "active",
            "expires": "2040-01-02T03:04:05Z",
            "rpm": 5,
            "tpm": 600,
            "concurrency": 2,
            "models": ["m", "n"],
            "budget": "1.5",
            "spent": "0",
            "every": None,
            "period_spent": "0",
            "max_cost": None,
            "max_session_cost": None,
            "endpoints": None,
            "addresses": None,
            "last_used": None,
            "user": None,
            "response_headers": [],
        }


async def test_limits_of_an_unlimited_key_are_null(world):
    async with world() as w:
        await w.caller()
        form = (await w.keys.list("acme"))[0].json_form()
        assert [form[name] for name in ("expires", "rpm", "tpm", "concurrency", "models", "budget")] == [None] * 6


async def test_keys_are_listed_by_account(world):
    async with world() as w:
        for account in ("umbra", "acme", "acme"):
            await w.caller(account)
        assert [key.account for key in await w.keys.list()] == ["acme", "acme", "umbra"]
        assert len(await w.keys.list("umbra")) == 1


async def test_expired_key_is_listed_as_expired(world):
    async with world() as w:
        key = await w.caller()
        await w.store.client.hset(f"{{a:acme}}:k:{key.id}", "exp", 1)
        assert (await w.keys.list())[0].state == "expired"


async def test_revocation_is_effective_when_it_returns_and_is_published(world):
    async with world() as w, w.store.channel(CHANGED) as channel:
        key = await w.caller()
        assert (await channel.message(within=60.0))["type"] == "subscribe"
        record = await w.keys.revoke(key.id)
        assert record.state == "revoked"
        with pytest.raises(errors.InvalidApiKey):
            await w.admit(key)
        message = await channel.message(within=60.0)
        assert message["data"] == f"acme:{key.id}".encode()
        assert (await w.keys.revoke(key.id)).state == "revoked"


@pytest.mark.holds("README.md#serve-real-models-3")
async def test_admissions_that_start_after_revocation_are_refused_under_load(world):
    async with world() as w:
        key = await w.caller()
        revoked = False
        admitted = late = 0

        async def call() -> None:
            nonlocal admitted, late
            while True:
                started_after = revoked
                try:
                    await w.admit(key, 1)
                except errors.InvalidApiKey:
                    return
                admitted += 1
                late += started_after

        callers = [asyncio.ensure_future(call()) for _ in range(20)]
        await until(lambda: admitted >= 100)
        await w.keys.revoke(key.id)
        revoked = True
        await asyncio.wait_for(asyncio.gather(*callers), 60)
        assert late == 0


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"rpm": 0}, "rpm"),
        ({"tpm": -1}, "tpm"),
        ({"concurrency": 10**10}, "conc"),
        ({"budget": 0}, "budget"),
        ({"budget": -5}, "budget"),
        ({"models": []}, "models"),
        ({"models": ["a\nb"]}, "model name"),
        ({"models": [""]}, "model name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"expires": datetime(2020, 1, 1, tzinfo=UTC)}, "passed"),
    ],
)
async def test_invalid_key_settings_are_refused_and_create_nothing(world, wish, reason):
    async with world() as w:
        await w.accounts.create("acme")
        before = await w.dump()
        with pytest.raises(InvalidValue, match=reason):
            await w.keys.create("acme", **wish)
        assert await w.dump() == before


async def test_unknown_accounts_and_keys_are_refused(world):
    async with world() as w:
        with pytest.raises(NotFound, match="no account 'nobody'"):
            await w.keys.create("nobody")
        with pytest.raises(NotFound, match="no account 'nobody'"):
            await w.keys.list("nobody")
        with pytest.raises(NotFound, match="no key 'key_x'"):
            await w.keys.revoke("key_x")
        with pytest.raises(InvalidValue):
            await w.keys.create("}{a:acme")
        assert await w.dump() == {}


async def test_one_of_several_calls_with_one_text_makes_its_key_and_nothing_is_left_of_the_others(world):
    async with world() as w:
        await w.accounts.create("acme")
        before = set(await w.dump())
        text = "sk-" + "x" * 43
        made = await asyncio.gather(
            *(w.keys.create("acme", text=text, user="usr_1") for _ in range(4)), return_exceptions=True
        )
        [new] = [one for one in made if not isinstance(one, BaseException)]
        assert [type(one) for one in made].count(InvalidValue) == 3
        [kept] = await w.keys.list("acme")
        assert (kept.id, [key.id for key in await w.keys.of_user("acme", "usr_1")]) == (new.id, [new.id])
        names = [name.decode() for name in set(await w.dump()) - before]
        own = [f"ki:{new.id}", f"{{a:acme}}:k:{new.id}", "{a:acme}:ks", "{a:acme}:uk:usr_1"]
        assert sorted(name for name in names if not name.startswith("kh:")) == sorted(own)
        assert [await w.store.client.scard(name) for name in own[2:]] == [1, 1]
        assert (await w.admit(await w.auth.authenticate(text), 0)).key.id == new.id


async def test_text_of_a_key_that_was_not_stored_to_the_end_is_still_free(world, monkeypatch):
    async with world() as w:
        await w.accounts.create("acme")
        text = "sk-" + "x" * 43

        async def fails(command: str, *_: Any) -> Any:
            if command == "SET":
                raise errors.StoreUnavailable

        def breaks(name: str) -> Any:
            return SimpleNamespace(call=fails) if name.startswith("kh:") else w.store.link(name)

        monkeypatch.setattr(w.keys, "_links", SimpleNamespace(link=breaks))
        with pytest.raises(errors.StoreUnavailable):
            await w.keys.create("acme", text=text)
        monkeypatch.undo()
        [incomplete] = await w.keys.list("acme")
        new = await w.keys.create("acme", text=text)
        assert (await w.admit(await w.auth.authenticate(text), 0)).key.id == new.id != incomplete.id


async def test_key_that_is_removed_while_it_is_revoked_was_of_no_use(world, monkeypatch):
    async with world() as w:
        key = await w.caller()
        tell = w.keys._tell

        async def remove(found: Any) -> None:
            await w.store.client.delete(f"{{a:acme}}:k:{key.id}")
            await tell(found)

        monkeypatch.setattr(w.keys, "_tell", remove)
        assert (await w.keys.revoke(key.id)).state == "revoked"

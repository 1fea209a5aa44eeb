"""Who writes a store's identity, and when the pepper's fingerprint is written into it."""

import asyncio

import pytest

from gateway.accounts.authenticator import Authenticator
from gateway.accounts.keys import Keys
from gateway.accounts.pepper import Peppers, pepper_fingerprint
from gateway.accounts.store_claim import claim, has_keys, prove_pepper, read_identity
from gateway.config.loader import demo_settings
from gateway.errors import InvalidApiKey, InvalidValue
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.store.identity import IDENTITY, SCHEMA, StoreGuard
from tests.polling import until
from tests.world import PEPPER

OLD, NEW = b"an old pepper of enough bytes", b"a new pepper of enough bytes"


async def test_empty_store_is_claimed_once_by_many_at_a_time(world):
    async with world() as w:
        peppers = Peppers(PEPPER).fingerprints
        found = await asyncio.gather(*(claim(w.store, peppers) for _ in range(8)))
        assert len({identity.deployment for identity in found}) == 1
        assert found[0].schema == SCHEMA
        assert (await read_identity(w.store)).peppers == peppers
        assert await claim(w.store, peppers) == await read_identity(w.store)


async def test_claim_with_accounts_and_without_keys_writes_the_fingerprint(world):
    async with world() as w:
        await w.accounts.create("acme")
        assert not await has_keys(w.store)
        assert (await claim(w.store, ("p",))).peppers == ("p",)


@pytest.mark.holds("operations/redis.md#the-stores-identity-5")
async def test_pepper_of_an_older_store_is_proved_by_the_first_key_that_is_found(world, valkey, tmp_path):
    async with world() as w:
        await w.accounts.create("acme")
        text = (await w.keys.create("acme")).text
        assert await has_keys(w.store)
        assert (await claim(w.store, (pepper_fingerprint(PEPPER),))).peppers == ()
        guard = StoreGuard(peppers=(pepper_fingerprint(PEPPER),))
        store = await Store.open(valkey, timeout=5.0, guard=guard)
        gateway = await Gateway.build(demo_settings(tmp_path), store, pepper=PEPPER)
        with pytest.raises(InvalidApiKey):
            await gateway.auth.authenticate("sk-unknown")
        before = guard.unproved
        await gateway.auth.authenticate(text)

        async def proved() -> bool:
            identity = await read_identity(w.store)
            return identity is not None and identity.peppers == (pepper_fingerprint(PEPPER),)

        await until(proved)
        assert (before, guard.unproved) == (True, False)
        await gateway.close()


async def test_rotation_is_noted_and_ends_and_another_pepper_changes_nothing(world):
    async with world() as w:
        old, new = Peppers(OLD), Peppers(NEW, OLD)
        await claim(w.store, old.fingerprints)
        assert (await claim(w.store, new.fingerprints)).peppers == new.fingerprints
        assert (await claim(w.store, ("another",))).peppers == new.fingerprints
        assert (await claim(w.store, Peppers(NEW).fingerprints)).peppers == Peppers(NEW).fingerprints
        assert "pepper" not in repr(new).lower().replace("peppers(***)", "")


async def test_key_of_the_previous_pepper_is_found_and_stored_under_the_new_one(world):
    async with world() as w:
        await w.accounts.create("acme")
        text = (await Keys(w.store, OLD).create("acme")).text
        with pytest.raises(InvalidApiKey):
            await Authenticator(w.store, NEW).authenticate(text)
        rotating = Authenticator(w.store, NEW, previous_pepper=OLD)
        key = await rotating.authenticate(text)
        assert await rotating.authenticate(text) is key
        assert await Authenticator(w.store, NEW).authenticate(text) == key
        with pytest.raises(InvalidApiKey):
            await rotating.authenticate("sk-unknown")


async def test_text_that_is_stored_under_the_previous_pepper_makes_no_second_key(world):
    async with world() as w:
        await w.accounts.create("acme")
        text = "sk-0123456789abcdef"
        before = await Keys(w.store, OLD).create("acme", text=text)
        rotating = Keys(w.store, lambda: Peppers(NEW, OLD))
        assert await rotating.owner_of(text) == ("acme", before.id)
        with pytest.raises(InvalidValue, match="there is a key with this text already"):
            await rotating.create("acme", text=text)
        assert [key.id for key in await rotating.list("acme")] == [before.id]
        assert await rotating.owner_of("sk-unknown") is None
        after = await rotating.create("acme")
        assert await Keys(w.store, NEW).owner_of(after.text) == ("acme", after.id)


async def test_identity_without_a_fingerprint_keeps_its_deployment_when_it_is_proved(world):
    async with world() as w:
        before = await claim(w.store)
        assert before.peppers == ()
        after = await prove_pepper(w.store, ("p",))
        assert (after.deployment, after.peppers) == (before.deployment, ("p",))
        assert await w.store.client.hkeys(IDENTITY) == [b"deployment", b"schema", b"peppers"]

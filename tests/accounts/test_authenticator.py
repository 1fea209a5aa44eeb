"""Who calls: the shape of credentials, the pepper, what is remembered and what never is."""

import asyncio
import hmac
import stat
from datetime import UTC, datetime

import pytest

from gateway import errors
from gateway.accounts.authenticator import Authenticator, Fingerprint, bearer, has_space
from gateway.accounts.pepper import PepperError, derive, load_pepper, read_pepper
from gateway.ledger.api_key import ApiKey

PEPPER = b"0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("authorization", "api_key", "credential"),
    [
        ("Bearer sk-abc", None, "sk-abc"),
        ("bearer sk-abc", None, "sk-abc"),
        ("BEARER    sk-abc ", None, "sk-abc"),
        ("Bearer sk-" + "x" * 509, None, "sk-" + "x" * 509),
        (None, "sk-abc", "sk-abc"),
        ("Bearer sk-abc", "sk-other", "sk-abc"),
        (None, None, None),
        ("", None, None),
        ("", "sk-abc", None),
        ("Bearer", None, None),
        ("Bearersk-abc", None, None),
        ("Bearer sk-", None, None),
        ("Bearer sk-" + "x" * 510, None, None),
        ("Bearer sk-a b", None, None),
        ("Bearer sk-a\tb", None, None),
        ("Bearer\tsk-abc", None, None),
        ("Bearer sk-caf\xe9", None, None),
        ("Bearer sk-abc\n", None, None),
        ("Bearer SK-abc", None, None),
        ("Basic sk-abc", None, None),
        ("sk-abc", None, None),
        (None, "abc", None),
    ],
)
def test_credential_is_read_from_the_headers(authorization, api_key, credential):
    assert bearer(authorization, api_key) == credential


@pytest.mark.parametrize(
    ("authorization", "api_key", "spaced"),
    [
        ("Bearer \tsk-abc", None, True),
        ("Bearer\tsk-abc", None, True),
        ("bearer sk-abc\x0b", None, True),
        ("Bearer sk-abc\xc2\xa0", None, True),
        ("Bearer \xe2\x80\x8bsk-abc", None, True),
        (None, "\xef\xbb\xbfsk-abc", True),
        (None, "sk-abc\x0c", True),
        ("Bearersk-abc", None, False),
        ("Bearer sk-a b", None, False),
        ("Bearer sk-caf\xe9", None, False),
        ("Bearer ", None, False),
        ("Basic  sk-abc", None, False),
        ("sk-abc", None, False),
        ("", "sk-abc\x0c", False),
        (None, None, False),
    ],
)
def test_white_space_around_a_credential_is_recognised(authorization, api_key, spaced):
    assert bearer(authorization, api_key) is None
    assert has_space(authorization, api_key) == spaced


@pytest.mark.parametrize("credential", [None, "", "abc", "sk-", "sk-with space", "sk-unknown", "sk-\ud800"])
async def test_missing_malformed_and_unknown_credentials_give_the_same_error(world, credential):
    async with world() as w:
        await w.caller()
        with pytest.raises(errors.InvalidApiKey) as refused:
            await w.auth.authenticate(credential)
        assert refused.value.message == "Missing or invalid API key"
        assert w.auth.cached(w.auth.fingerprint(credential)) is None


async def test_key_is_found_by_its_fingerprint_and_then_cached(world):
    async with world() as w:
        await w.accounts.create("acme")
        new = await w.keys.create("acme")
        assert w.auth.cached(w.auth.fingerprint(new.text)) is None
        key = await w.auth.authenticate(new.text)
        assert key == ApiKey("acme", new.id)
        assert w.auth.cached(w.auth.fingerprint(new.text)) == key
        await w.store.close()
        assert await w.auth.authenticate(new.text) == key


async def test_key_cache_is_bounded_and_has_no_credential(world):
    async with world() as w:
        await w.accounts.create("acme")
        auth = Authenticator(w.store, PEPPER, cache_size=2)
        texts = [(await w.keys.create("acme")).text for _ in range(3)]
        for text in texts:
            await auth.authenticate(text)
        assert [auth.cached(auth.fingerprint(text)) is not None for text in texts] == [False, True, True]
        assert not any(text in repr(vars(auth)) for text in texts)


async def test_wrong_pepper_makes_every_key_invalid(world):
    async with world() as w:
        await w.accounts.create("acme")
        text = (await w.keys.create("acme")).text
        with pytest.raises(errors.InvalidApiKey):
            await Authenticator(w.store, b"another pepper of enough bytes").authenticate(text)


async def test_confirm_returns_the_current_permissions_of_the_key(world):
    async with world() as w:
        key = await w.caller(group="gold", models=["m", "n"])
        await w.accounts.allow("acme", ["m", "x"])
        await w.accounts.deny("acme", ["n"])
        before = await w.dump()
        view = await w.auth.confirm(key, ["m", "n", "x"])
        assert await w.dump() == before
        assert (view.key, view.group, view.models) == (key, "gold", frozenset({"m", "n"}))
        assert view.rules == {"m": "+", "n": "-", "x": "+"}
        gold = frozenset({"gold"})
        assert view.permits("m", frozenset())
        assert not view.permits("n", gold)
        assert not view.permits("x", gold)
        with pytest.raises(KeyError):
            view.permits("o", gold)
        plain = await w.auth.confirm(await w.caller(), ["y"])
        assert plain.models is None
        assert plain.permits("y", gold)
        assert not plain.permits("y", frozenset({"default"}))


async def test_confirm_refuses_a_revoked_key_or_a_disabled_account_at_once(world):
    async with world() as w:
        key, expired = await w.caller(), await w.caller()
        await w.accounts.disable("acme")
        with pytest.raises(errors.InsufficientPermissions):
            await w.auth.confirm(key)
        await w.accounts.enable("acme")
        await w.auth.confirm(key)
        await w.keys.revoke(key.id)
        await w.store.client.hset(f"{{a:acme}}:k:{expired.id}", "exp", int(datetime.now(UTC).timestamp()))
        for ended in (key, expired):
            with pytest.raises(errors.InvalidApiKey):
                await w.auth.confirm(ended)


async def test_known_key_that_the_store_has_lost_is_unavailable_and_not_invalid(world):
    async with world() as w:
        await w.caller()
        for lost in (ApiKey("nobody", "key_x"), ApiKey("acme", "key_x")):
            with pytest.raises(errors.StoreUnavailable):
                await w.auth.confirm(lost)
            with pytest.raises(errors.StoreUnavailable):
                await w.admit(lost)


async def test_many_models_are_confirmed_in_pages(world, monkeypatch):
    monkeypatch.setattr("gateway.accounts.authenticator.PAGE", 3)
    names = [f"m{n}" for n in range(10)]
    async with world() as w:
        key = await w.caller()
        await w.accounts.deny("acme", names[::2])
        view = await w.auth.confirm(key, names)
        assert [name for name in names if view.permits(name, frozenset({"default"}))] == names[1::2]


async def test_confirm_and_admit_agree_on_every_permission(world):
    async with world() as w:
        plain, picky = await w.caller(), await w.caller(models=["m", "o"])
        await w.accounts.allow("acme", ["m"])
        await w.accounts.deny("acme", ["n"])
        for key in (plain, picky):
            view = await w.auth.confirm(key, ["m", "n", "o", "p"])
            for model in ("m", "n", "o", "p"):
                for groups in (frozenset(), frozenset({"default"})):
                    try:
                        await w.admit(key, model=model, groups=groups)
                        admitted = True
                    except errors.ModelNotPermitted:
                        admitted = False
                    assert view.permits(model, groups) == admitted


def test_pepper_is_created_once_with_mode_0600(tmp_path):
    folder = tmp_path / "deep" / "var"
    pepper = load_pepper(folder)
    assert len(pepper) == 64
    assert stat.S_IMODE((folder / "pepper").stat().st_mode) == 0o600
    assert load_pepper(folder) == pepper
    assert [path.name for path in folder.iterdir()] == ["pepper"]


async def test_two_processes_that_start_at_once_get_one_pepper(tmp_path):
    peppers = await asyncio.gather(*(asyncio.to_thread(load_pepper, tmp_path) for _ in range(8)))
    assert len(set(peppers)) == 1


def test_pepper_readable_by_others_is_refused(tmp_path):
    load_pepper(tmp_path)
    (tmp_path / "pepper").chmod(0o640)
    with pytest.raises(PepperError, match="chmod 600"):
        load_pepper(tmp_path)


def test_short_pepper_is_refused():
    with pytest.raises(PepperError, match="PEPPER"):
        read_pepper("  short \n", source="env:PEPPER")


def test_each_purpose_has_a_key_of_its_own():
    assert derive(PEPPER, "one") != derive(PEPPER, "two")
    assert Fingerprint(PEPPER)("sk-a") != Fingerprint(PEPPER)("sk-b")


def test_fingerprint_is_the_hmac():
    expected = hmac.new(derive(PEPPER, "api-key"), b"sk-abc", "sha256").hexdigest()
    fingerprint = Fingerprint(PEPPER)
    assert [fingerprint("sk-abc") for _ in range(2)] == [expected] * 2

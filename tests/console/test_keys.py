"""The pages of API keys."""

from __future__ import annotations

import re
import time

import pytest

from gateway.accounts.store_claim import PepperCheck
from gateway.errors import InvalidValue
from gateway.history.caller_addresses import add_addresses
from gateway.ledger.caller_addresses import AddressBatch
from gateway.store.links import slot
from tests.console.client import ROOT, Browser, Console, Shown
from tests.console.history import ago, calls

KEYS = "/accounts/acme/keys"
TEXT = re.compile(r"sk-[\w-]{43}")


async def created(browser: Browser, **form: object) -> Shown:
    return await browser.post(f"{KEYS}/new", 200, page=f"{KEYS}/new", **form)


def key_id(shown: Shown) -> str:
    return shown.found(r"keys/(key_[a-z0-9]+)")


async def test_key_is_shown_once_with_programs_that_use_it(console) -> None:
    async with console(api_url="https://api.example.com/v1") as c:
        ann = await c.as_("ann", acme="member")
        page = await created(ann, name="search <b>", rpm="30", budget="2.5", every="month", models=["tiny"])
        [text] = set(TEXT.findall(page.html))
        assert page.text.count(text) >= 4 and "https://api.example.com/v1/chat/completions" in page.text
        assert '"model": "tiny"' in page.text and "secret" not in page.text
        assert f'data-address="{KEYS}"' in page.html
        listed = await ann.get(KEYS)
        assert text not in listed.html and text[-4:] in listed.text and "search <b>" in listed.text
        key = await c.services.store.keys.show(key_id(listed))
        assert (key.rpm, key.budget, key.every, key.models) == (30, 2_500_000_000, "month", ["tiny"])
        assert (await c.services.store.keys.owner_of(text)) == ("acme", key.id)


async def test_input_that_is_refused_comes_back_with_what_was_typed(console) -> None:
    async with console() as c:
        ann = await c.as_("ann", acme="member")
        for field, value, problem in (
            ("budget", "a lot", "Budget: expected an amount"),
            ("budget", "0", "a budget of 0 is not possible"),
            ("rpm", "0", "rpm must lie between"),
            ("rpm", "-1", "Requests per minute: expected a whole number"),
            ("rpm", "1_0", "Requests per minute: expected a whole number"),
            ("tpm", "\u0665", "Tokens per minute: expected a whole number"),
            ("concurrency", "\uff15", "Calls at the same time: expected a whole number"),
            ("expires", "20301231", "A date is written as"),
            ("expires", "2020-01-01", "has passed already"),
            ("addresses", "nowhere", "not an address range"),
            ("models", "no such model", "no model"),
        ):
            page = await ann.post(f"{KEYS}/new", 400, page=f"{KEYS}/new", name="mine", **{field: value})
            assert problem in page.text and 'value="mine"' in page.html
        assert not await c.services.store.keys.list("acme")


async def test_members_see_and_change_their_own_keys_only(console) -> None:
    async with console() as c:
        ann, ben = await c.as_("ann", acme="member"), await c.as_("ben", acme="member")
        owner = await c.as_("owner", acme="owner")
        await created(ann, name="of ann")
        service = (await c.services.store.keys.create("acme", name="service")).id
        other = (await c.services.store.keys.create("other", name="elsewhere")).id
        mine = key_id(await ann.get(KEYS))
        assert "No keys yet" in (await ben.get(KEYS)).text and "service" not in (await ann.get(KEYS)).text
        assert "of ann" in (await owner.get(KEYS)).text and "service key" in (await owner.get(KEYS)).text
        for browser, key in ((ben, mine), (ann, service), (ann, other), (owner, other), (ann, "key_none")):
            for path in (f"{KEYS}/{key}", f"{KEYS}/{key}/rotate", f"{KEYS}/{key}/revoke"):
                assert (await browser.ask("GET", path)).status == 404
                await browser.post(path, 404, name="x")
        assert (await c.services.store.keys.show(other)).state == "active"


async def test_member_renames_a_key_and_owner_changes_its_limits(console) -> None:
    async with console() as c:
        ann, owner = await c.as_("ann", acme="member"), await c.as_("owner", acme="owner")
        await created(ann, name="old", rpm="5")
        key = key_id(await ann.get(KEYS))
        await ann.post(f"{KEYS}/{key}", name="new", rpm="900")
        assert ((await c.services.store.keys.show(key)).name, (await c.services.store.keys.show(key)).rpm) == ("new", 5)
        assert "The key is changed" in (await ann.get(f"{KEYS}/{key}")).text
        form = {"name": "new", "tpm": "1000", "endpoints": ["chat"], "addresses": "192.0.2.0/24, 198.51.100.7"}
        await owner.post(f"{KEYS}/{key}", **form)
        changed = await c.services.store.keys.show(key)
        assert (changed.rpm, changed.tpm, changed.endpoints) == (None, 1000, ["chat"])
        assert changed.addresses == ["192.0.2.0/24", "198.51.100.7/32"]
        await owner.post(f"{KEYS}/{key}", name="new")
        cleared = await c.services.store.keys.show(key)
        assert (cleared.tpm, cleared.endpoints, cleared.addresses) == (None, None, None)


async def test_rotation_shows_the_new_key_and_lets_the_old_one_work_for_the_overlap(console) -> None:
    async with console() as c:
        ann = await c.as_("ann", acme="member")
        await created(ann, name="mine", concurrency="3")
        old = key_id(await ann.get(KEYS))
        await ann.post(f"{KEYS}/{old}/rotate", 400, overlap="5")
        page = await ann.post(f"{KEYS}/{old}/rotate", 200, overlap="24")
        assert TEXT.search(page.html) and "It replaces the key" in page.text
        keys = {key.id: key for key in await c.services.store.keys.list("acme")}
        [new] = set(keys) - {old}
        assert keys[old].expires is not None and keys[new].concurrency == 3 and keys[new].user == keys[old].user


async def test_revocation_asks_first_and_holds_at_once(console) -> None:
    async with console() as c:
        ann = await c.as_("ann", acme="member")
        await created(ann, name="mine")
        key = key_id(await ann.get(KEYS))
        assert "Revoke mine?" in (await ann.get(f"{KEYS}/{key}/revoke")).text
        assert (await c.services.store.keys.show(key)).state == "active"
        await ann.post(f"{KEYS}/{key}/revoke")
        assert (await c.services.store.keys.show(key)).state == "revoked"
        page = await ann.get(KEYS)
        assert "The key mine is revoked" in page.text and "Show keys that have ended, too" in page.text
        assert "The key mine is revoked" not in (await ann.get(KEYS)).text  # a message is shown once
        assert "revoked" in (await ann.get(f"{KEYS}?ended=1")).text
        actions = [event.action for _, event in await c.services.store.outbox.read() if event is not None]
        assert actions == ["keys.create", "keys.revoke"]


async def test_owner_creates_service_keys_and_viewer_none(console) -> None:
    async with console() as c:
        owner, viewer = await c.as_("owner", acme="owner"), await c.as_("viewer", role="viewer")
        await created(owner, name="robot", owner="service")
        [key] = await c.services.store.keys.list("acme")
        assert key.user is None
        member = await c.as_("ann", acme="member")
        await member.post(f"{KEYS}/new", 403, name="sly", owner="service")
        assert len(await c.services.store.keys.list("acme")) == 1
        assert "Only members" in (await viewer.get(f"{KEYS}/new")).text
        await viewer.post(f"{KEYS}/new", 403, name="x")


async def old_key(c: Console, name: str, *, days: int, used: int | None = None, user: str = "") -> None:
    """A key that was made and last used so many days ago."""
    key, now = await c.services.store.keys.create("acme", name=name, user=user), int(time.time())
    fields = {"created": now - days * 86_400} | ({"used": now - used * 86_400} if used is not None else {})
    hash_ = f"{slot('acme')}:k:{key.id}"
    await c.services.store.store.link(hash_).call("HSET", hash_, *[word for pair in fields.items() for word in pair])


@pytest.mark.holds("console.md#api-keys-1")
async def test_keys_that_were_not_used_for_some_days_are_found(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", acme="member")
        owner, ann = await c.as_("owner", acme="owner"), await c.signed_in(user)
        await old_key(c, "never used", days=100)
        await old_key(c, "long ago", days=300, used=40, user=user.id)
        await old_key(c, "busy", days=300, used=2)
        await c.services.store.keys.create("acme", name="quite new")
        for days, names in (("30", {"never used", "long ago"}), ("90", {"never used"}), ("180", set())):
            page = await owner.get(f"{KEYS}?unused={days}")
            assert set(re.findall(r'keys/key_[a-z0-9]+">([^<]+)</a>', page.html)) == names
            assert f'<option value="{days}" selected>' in page.html
        assert "No active key was unused for 180 days" in page.text
        theirs = await ann.get(f"{KEYS}?unused=30")
        assert (
            "long ago" in theirs.text and "never used" not in theirs.text and "This active key was made" in theirs.text
        )
        assert "quite new" in (await owner.get(f"{KEYS}?unused=7")).text  # not on the list: no filter


async def test_names_are_shown_as_text_whatever_they_contain(console) -> None:
    text = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}{% x %}"
    async with console() as c:
        people = await c.services.people()
        user = await c.user("ann@example.com", acme="owner")
        await people.users.edit(ROOT, user.id, {"name": text})
        ann = await c.signed_in(user)
        await created(ann, name=text)
        key = key_id(await ann.get(KEYS))
        for path in (KEYS, f"{KEYS}/{key}", f"{KEYS}/{key}/revoke", f"{KEYS}/{key}/rotate", "/profile"):
            page = await ann.get(path)
            assert text in page.text and "<img" not in page.html and "<script>" not in page.html
        assert f"The key {text} is revoked" in (await revoked(ann, key)).text


async def revoked(browser: Browser, key: str) -> Shown:
    await browser.post(f"{KEYS}/{key}/revoke")
    return await browser.get(KEYS)


async def test_key_is_not_created_while_the_store_has_another_pepper(console, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console() as c:
        ann = await c.as_("ann", acme="member")

        async def refused(self: PepperCheck) -> None:
            raise InvalidValue("the store's keys have another pepper")

        monkeypatch.setattr(PepperCheck, "check", refused)
        page = await ann.post(f"{KEYS}/new", 400, page=f"{KEYS}/new", name="x")
        assert "another pepper" in page.text and not await c.services.store.keys.list("acme")


async def test_pages_of_a_key_and_of_a_call_show_from_where_it_was_used(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", acme="member")
        ann = await c.signed_in(user)
        key = await c.services.store.keys.create("acme", user=user.id)
        assert "Used from" not in (await ann.get(f"{KEYS}/{key.id}")).text
        [call] = await calls(c, ago(minutes=1), key=key.id, user=user.id)
        batch = AddressBatch(time.time_ns() // 1000, [(key.id, "192.0.2.0/24", [call])])
        add_addresses(await c.services.database(), [batch])
        assert "192.0.2.0/24" in (await ann.get(f"{KEYS}/{key.id}")).text
        assert "192.0.2.0/24" in (await ann.get(f"/accounts/acme/usage/{call}")).text

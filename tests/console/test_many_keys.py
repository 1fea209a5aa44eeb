"""An account with many keys: pages are small, read few of the keys, and lead to all of them."""

from __future__ import annotations

import asyncio
import re
import time
from html import unescape
from typing import Any

import pytest

from gateway.admin import keys as key_service
from gateway.history.refusals import add_batches
from gateway.ledger.refusal_counts import HOUR, RefusalBatch
from tests.console.client import Browser, Console, Shown
from tests.console.history import ago, calls

OWN = "/accounts/acme"
KEYS = f"{OWN}/keys"
PAGE, CHOICE = 50, 200  # keys


async def made(c: Console, count: int, **settings: Any) -> list[str]:
    """The ids of new keys; their names are their numbers. Ids of the same millisecond have no order."""
    keys = c.services.store.keys
    return [(await keys.create("acme", name=f"number {n}", **settings)).id for n in range(count)]


def newest_first(ids: list[str]) -> list[str]:
    return sorted(ids, reverse=True)


def listed(page: Shown) -> list[str]:
    """The ids of the keys in the table."""
    return re.findall(rf'href="{KEYS}/(key_[a-z0-9]+)">', page.html)


def link(page: Shown, text: str) -> str:
    """The address behind a link."""
    return unescape(page.found(rf'<a [^>]*href="([^"]+)"[^>]*>{text}</a>'))


async def all_pages(browser: Browser, path: str) -> list[str]:
    """The ids of all keys from this page on."""
    found = list[str]()
    while True:
        page = await browser.get(path)
        found += listed(page)
        if ">Older<" not in page.html and ">Look at older ones<" not in page.html:
            return found
        path = link(page, "(?:Older|Look at older ones)")


@pytest.mark.holds("console.md#api-keys-2")
async def test_pages_of_keys_lead_to_all_of_them_newest_first(console: Any) -> None:
    async with console() as c:
        ids = await made(c, 120)
        owner = await c.as_("owner", acme="owner")
        assert listed(await owner.get(KEYS)) == newest_first(ids)[:PAGE]
        assert await all_pages(owner, KEYS) == newest_first(ids)
        second = await owner.get(link(await owner.get(KEYS), "Older"))
        assert listed(await owner.get(link(second, "Newest"))) == newest_first(ids)[:PAGE]


async def test_keys_of_older_versions_follow_the_others_on_the_pages(console: Any, monkeypatch: Any) -> None:
    async with console() as c:
        old = sorted(f"key_{n}23456789abcdef" for n in "zam")
        for one in old:
            with monkeypatch.context() as patch:
                patch.setattr("gateway.accounts.keys.new_key_id", lambda: one)  # noqa: B023 - called at once
                await c.services.store.keys.create("acme", name=one)
        ids = await made(c, 60)
        owner = await c.as_("owner", acme="owner")
        assert await all_pages(owner, KEYS) == [*newest_first(ids), *newest_first(old)]


@pytest.mark.holds("console.md#api-keys-2")
async def test_key_is_found_by_its_name_its_last_characters_and_its_id(console: Any) -> None:
    async with console() as c:
        ids = await made(c, 60)
        owner = await c.as_("owner", acme="owner")
        first = await c.services.store.keys.show(ids[0])
        for search in ("NUMBER 0", f"…{first.last4}", first.last4, first.id):
            assert ids[0] in listed(await owner.get(f"{KEYS}?q={search}"))
        assert listed(await owner.get(f"{KEYS}?q=number 0")) == [ids[0]]
        assert "No key fits" in (await owner.get(f"{KEYS}?q=nothing")).text


async def test_keys_behind_many_that_do_not_fit_are_reached(console: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(key_service, "READ_AT_ONCE", 10)
    monkeypatch.setattr(key_service, "READ_AT_MOST", 40)
    async with console() as c:
        store = c.services.store
        ids = await made(c, 130)
        for one in ids[10:]:
            await store.keys.revoke(one)
        owner = await c.as_("owner", acme="owner")
        page = await owner.get(KEYS)
        assert not listed(page) and "None of the newest keys" in page.text
        assert await all_pages(owner, KEYS) == newest_first(ids[:10])
        assert await all_pages(owner, link(page, "Show keys that have ended, too")) == newest_first(ids)
        assert await all_pages(owner, f"{KEYS}?q=number 3") == [ids[3]]


async def test_pages_of_an_account_with_thousands_of_keys_read_few_of_them(console: Any, monkeypatch: Any) -> None:
    async with console() as c:
        keys = c.services.store.keys
        for _ in range(4):
            values = [{"name": f"customer {n}", "state": "active", "created": 1_700_000_000 + n} for n in range(500)]
            await asyncio.gather(*(keys.store("acme", one, show_cost=False) for one in values))
        owner, read = await c.as_("owner", acme="owner"), list[str]()

        async def counted(account: str, key_id: str, *rest: Any) -> Any:
            read.append(key_id)
            return await real(account, key_id, *rest)

        real = keys._read
        monkeypatch.setattr(keys, "_read", counted)
        for path in (OWN, KEYS, f"{OWN}/usage", f"{OWN}/reports"):
            read.clear()
            page = await owner.get(path)
            assert len(page.body) < 100_000, path
            assert len(read) <= CHOICE, path


@pytest.mark.holds("console.md#api-keys-2")
async def test_filter_by_key_offers_the_newest_and_keeps_an_older_one(console: Any) -> None:
    async with console() as c:
        [old, *_, new] = await made(c, CHOICE + 50)
        owner = await c.as_("owner", acme="owner")
        [request] = await calls(c, ago(hours=1), key=old)
        for path in (f"{OWN}/usage", f"{OWN}/reports"):
            page = await owner.get(path)
            assert f'value="{new}"' in page.html and f'value="{old}"' not in page.html
            assert "older keys" in page.text
            assert f'value="{old}" selected' in (await owner.get(f"{path}?key={old}")).html
        page = await owner.get(f"{OWN}/usage?key={old}")
        assert request in page.html and "number 0" in page.text


async def test_refused_requests_are_counted_beside_those_of_many_other_keys(console: Any) -> None:
    async with console() as c:
        ann, owner = await c.user("ann@example.com", acme="member"), await c.as_("owner", acme="owner")
        [own] = await made(c, 1, user=ann.id)
        hour = int(time.time()) // HOUR - 1
        counts = [(hour, "acme", f"key_{n}", "tiny", "rate_limit_exceeded", 2) for n in range(1100)]
        counts.append((hour, "acme", own, "tiny", "rate_limit_exceeded", 1))
        add_batches(await c.services.database(), [RefusalBatch("b1", counts)])
        browser = await c.signed_in(ann)
        for path, text in ((OWN, "1 refused"), (f"{OWN}/usage", "1 request refused before it ran")):
            assert text in (await browser.get(path)).text
        assert "2,201 refused" in (await owner.get(OWN)).text
        assert "2,201 requests refused" in (await owner.get(f"{OWN}/usage")).text
        assert "1 request refused" in (await owner.get(f"{OWN}/usage?user={ann.id}")).text


@pytest.mark.parametrize("path", [OWN, f"{OWN}/usage"])
async def test_only_who_may_create_keys_is_told_to(console: Any, path: str) -> None:
    async with console() as c:
        member, viewer = await c.as_("ann", acme="member"), await c.as_("eve", role="viewer")
        assert "Create a key" in (await member.get(path)).text
        page = await viewer.get(path)
        assert "No calls yet" in page.text and "Create a key" not in page.text

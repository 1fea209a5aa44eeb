"""The filters of the Usage page: which there are, and what they let pass of calls and of refused requests."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import quote

import pytest

from gateway.console.outcomes import WORDS
from gateway.errors import UpstreamError
from gateway.history.refusals import add_batches
from gateway.ids import Ids
from gateway.ledger.refusal_counts import HOUR, RefusalBatch
from gateway.web.recent_answers import RecentAnswers
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT, Console, Shown
from tests.console.history import ago, calls, history

__all__ = ["database_address", "database_url"]

OVERVIEW = "/accounts/acme"
USAGE = "/accounts/acme/usage"


async def refused(console: Console, *counts: tuple[float, str, str, int]) -> None:
    """Count refused requests: how many hours ago, the key, the model, and how many."""
    now = int(datetime.now(UTC).timestamp())
    rows = [((now - int(ago * HOUR)) // HOUR, "acme", key, model, "c", count) for ago, key, model, count in counts]
    add_batches(await console.services.database(), [RefusalBatch(f"batch {counts}", rows)])


def options(page: Shown, name: str) -> dict[str, str]:
    """The choices of a filter: texts by value."""
    found = re.search(rf'<select name="{name}"[^>]*>(.*?)</select>', page.html, re.DOTALL)
    pairs = re.findall(r'<option(?: value="([^"]*)")?[^>]*>([^<]*)', found[1] if found else "")
    return {unescape(value): unescape(text) for value, text in pairs if value or text != "all"}


async def test_member_opens_a_call_by_the_id_that_the_answer_has(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", acme="member")
        member = await c.signed_in(user)
        ids = Ids()
        own, other = ids.request_id(), ids.request_id()
        await calls(c, ago(minutes=3), request_id=own, user=user.id)
        await calls(c, ago(minutes=2), request_id=other)
        assert "Request or chatcmpl-… id" in (await member.get(USAGE)).text
        for text in (own, ids.completion_id(own), f" {own} "):
            moved = await member.get(f"{USAGE}?request={quote(text)}", 303)
            assert moved.headers["Location"].startswith(f"{USAGE}/")
            assert own in (await member.get(moved.headers["Location"])).html
        for text in (ids.completion_id(other), "//example.com/?a#b", "<b>"):
            moved = await member.get(f"{USAGE}?request={quote(text, safe='')}", 303)
            assert moved.headers["Location"] == f"{USAGE}/{quote(text, safe='')}"
            await member.get(moved.headers["Location"], 404)


@pytest.mark.holds("console.md#usage-and-overview-3")
async def test_refused_requests_after_the_range_do_not_count(console) -> None:
    async with console() as c:
        key = (await c.services.store.keys.create("acme", name="robot")).id
        await refused(c, (1, key, "tiny", 5), (24 * 10, key, "tiny", 2))
        owner = await c.as_("owner", acme="owner")
        days = [f"{datetime.now(UTC) - timedelta(days=day):%Y-%m-%d}" for day in (12, 8, 5)]
        old, none = f"from={days[0]}&to={days[1]}", f"from={days[1]}&to={days[2]}"
        for query, count in (("range=24h", 5), ("range=30d", 7), (old, 2)):
            assert f", {count} requests refused before they ran." in (await owner.get(f"{USAGE}?{query}")).text
            assert f"100 % 0 failed, {count} refused" in (await owner.get(f"{OVERVIEW}?{query}")).text
        assert "refused" not in (await owner.get(f"{USAGE}?{none}")).text
        assert "0 failed, 0 refused" in (await owner.get(f"{OVERVIEW}?{none}")).text


@pytest.mark.holds("console.md#usage-and-overview-3")
async def test_refused_requests_pass_the_filters_of_calls_and_have_no_outcome(console) -> None:
    async with console() as c:
        c.services.recent = RecentAnswers(30.0)  # no second passes between these pages
        ann, bob = [await c.user(f"{name}@example.com", acme="member") for name in ("ann", "bob")]
        keys = [(await c.services.store.keys.create("acme", user=user)).id for user in (ann.id, bob.id, "")]
        await refused(c, (1, keys[0], "tiny", 1), (1, keys[0], "fake-chat", 10), (1, keys[1], "tiny", 100))
        await refused(c, (1, keys[2], "tiny", 1000))
        owner = await c.as_("owner", acme="owner")
        for query, count in (
            ("", "1,111 requests"),
            ("model=tiny", "1,101 requests"),
            (f"key={keys[1]}", "100 requests"),
            (f"user={ann.id}", "11 requests"),
            (f"user={ann.id}&model=tiny", "1 request"),
        ):
            assert f", {count} refused before" in (await owner.get(f"{USAGE}?{query}")).text, query
        for query in ("outcome=ok", f"user={ann.id}&key={keys[1]}", "user=usr_nobody"):
            assert "refused" not in (await owner.get(f"{USAGE}?{query}")).text, query
        assert ", 11 requests refused before they ran" in (await (await c.signed_in(ann)).get(USAGE)).text


@pytest.mark.holds("console.md#usage-and-overview-2")
async def test_outcomes_to_choose_are_those_of_the_calls_that_the_reader_sees(console) -> None:
    async with console() as c:
        ann = await c.user("ann@example.com", acme="member")
        account = await history(c)
        account.call(ago(days=5), 8, outcome="client_closed")
        account.call(ago(hours=3), 4, model="fake-chat", outcome="odd_code")
        timed_out = account.call(ago(hours=2), 2, model="fake-chat", outcome="upstream_timeout")
        account.call(ago(hours=1), 1, user=ann.id, model="tiny")
        account.flush()
        owner = await c.as_("owner", acme="owner")
        words = {
            "ok": "ok",
            "odd_code": "odd_code",
            "upstream_timeout": "upstream_timeout: the provider did not answer in time",
        }
        closed = {"client_closed": "client_closed: the client left first"}
        assert options(await owner.get(f"{USAGE}?range=24h"), "outcome") == words
        assert options(await owner.get(f"{USAGE}?range=30d"), "outcome") == words | closed
        assert options(await owner.get(f"{USAGE}?range=24h&model=tiny"), "outcome") == {"ok": "ok"}
        assert options(await (await c.signed_in(ann)).get(USAGE), "outcome") == {"ok": "ok"}
        page = await owner.get(f"{USAGE}?range=24h&outcome=upstream_timeout")
        assert options(page, "outcome") == words and 'value="upstream_timeout" selected' in page.html
        assert "1 call, 0.000000002 USD" in page.text and timed_out in page.html and "tiny Spend" not in page.text


@pytest.mark.holds("console.md#usage-and-overview-2")
async def test_reclaimed_call_is_found_by_the_outcome_that_the_sums_have(console) -> None:
    async with console() as c:
        await calls(c, ago(hours=2), model="tiny")
        [lost] = await calls(c, ago(hours=1), kind="reclaim", outcome="", model="tiny")
        owner, viewer = await c.as_("owner", acme="owner"), await c.as_("v", role="viewer")
        assert "reclaimed" in options(await owner.get(USAGE), "outcome")
        page = await owner.get(f"{USAGE}?outcome=reclaimed")
        assert "1 call," in page.text and lost in page.html and ">reclaimed</span>" in page.html
        assert lost in (await owner.get(f"{USAGE}.csv?outcome=reclaimed")).html
        for query in ("", "&account=acme"):
            found = (await viewer.get(f"/site/calls?outcome=reclaimed{query}")).html
            assert found.count("/usage/req_") == 1 and lost in found


@pytest.mark.holds("console.md#usage-and-overview-2")
async def test_whoever_sees_all_calls_filters_by_member(console) -> None:
    async with console() as c:
        ann = await c.user("ann@example.com", acme="member")
        owner, viewer = await c.as_("owner", acme="owner"), await c.as_("v", role="viewer")
        [other] = await calls(c, ago(hours=2), user="usr_gone", key="key_2")
        [hers] = await calls(c, ago(hours=1), user=ann.id)
        for browser in (owner, viewer):
            page = await browser.get(USAGE)
            assert {"ann@example.com", "owner@example.com"} == set(options(page, "user").values())
            assert options(page, "user")[ann.id] == "ann@example.com"
            page = await browser.get(f"{USAGE}?user={ann.id}")
            assert hers in page.html and other not in page.html and "1 call," in page.text
            assert f'value="{ann.id}" selected' in page.html
        gone = await owner.get(f"{USAGE}?user=usr_gone")
        assert options(gone, "user")["usr_gone"] == "former member usr_gone" and other in gone.html
        member = await (await c.signed_in(ann)).get(USAGE)
        assert not options(member, "user") and "owner@example.com" not in member.html


@pytest.mark.holds("console.md#usage-and-overview-2")
async def test_chosen_member_behind_the_first_ones_has_a_name(console, monkeypatch) -> None:
    for module in ("choices", "pages.usage", "pages.reports"):
        monkeypatch.setattr(f"gateway.console.{module}.MOST_MEMBERS", 1)
    async with console() as c:
        owner = await c.as_("ann", acme="owner")
        zoe = await c.user("zoe@example.com", acme="member")
        other = await c.user("eve@example.com", other="member")
        for path in (USAGE, "/accounts/acme/reports"):
            page = await owner.get(path)
            assert "zoe@example.com" not in page.html and "further members" in page.text
            page = await owner.get(f"{path}?user={zoe.id}")
            assert options(page, "user")[zoe.id] == "zoe@example.com" and f'value="{zoe.id}" selected' in page.html
            assert "eve@example.com" not in (await owner.get(f"{path}?user={other.id}")).html
        page = await owner.get(f"{USAGE}?user={other.id}")
        assert options(page, "user")[other.id] == f"former member {other.id}"


def test_every_failure_of_a_provider_has_words() -> None:
    waiting, codes = [UpstreamError], set[str]()
    while waiting:
        error = waiting.pop()
        waiting += error.__subclasses__()
        codes |= {error.default_code} if error.default_code and error.__module__.startswith("gateway.") else set()
    assert len(codes) > 5 and codes <= WORDS.keys()


def models(page: Shown) -> set[str]:
    """The choices of the filter of models; their values are their texts."""
    shown = page.found(r'(?s)<select name="model"[^>]*>(.*?)</select>')
    return set(re.findall(r"<option[^>]*>([^<]*)", shown)) - {"all"}


@pytest.mark.holds("console.md#security-10")
async def test_filter_has_the_models_that_the_account_may_use_and_those_that_were_used(console) -> None:
    async with console() as c:
        for path in ("ann", "root"):
            reader = await c.as_(path, acme="member", role="operator" if path == "root" else "none")
            assert models(await reader.get(USAGE)) == {"fake-chat", "tiny"}
            assert "secret" not in (await reader.get(USAGE)).html
        owner = await c.as_("bob", acme="owner")
        await calls(c, ago(minutes=3), model="secret")
        await c.services.store.account_admin.move(ROOT, "other", "vip")
        assert models(await owner.get(f"{USAGE}?range=30d")) == {"fake-chat", "secret", "tiny"}
        other = await c.as_("eve", other="member")
        assert "secret" in models(await other.get("/accounts/other/usage"))

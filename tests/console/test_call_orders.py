"""Lists of calls by cost and by duration, and users and keys that are chosen by their names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.admin import keys as key_service
from gateway.history import ranked_calls
from tests.console.client import ROOT, Console, Shown
from tests.console.history import ago, history

COSTS = {"cheap": (1_000_000, 30), "dear": (900_000_000, 20), "slow": (5_000_000, 8000), "free": (0, 10)}


async def some_calls(c: Console) -> dict[str, str]:
    """Calls of acme, the cheapest the newest of all but one; their request ids by name."""
    account = await history(c)
    ids = {
        name: account.call(ago(minutes=20 - number), cost, duration_ms=duration, model="fake-chat")
        for number, (name, (cost, duration)) in enumerate(COSTS.items())
    }
    account.flush()
    return ids


def listed(shown: Shown, ids: dict[str, str]) -> list[str]:
    """The names of the calls in the table, in their order."""
    names = {id_: name for name, id_ in ids.items()}
    return [names[id_] for id_ in re.findall(r'/usage/(req_[^"?]+)"><time', shown.html)]


def link(shown: Shown, label: str) -> str:
    return shown.found(rf'<a [^>]*href="([^"]*)"[^>]*>{label}</a>')


@pytest.mark.holds("console.md#calls-1")
@pytest.mark.parametrize("path", ["/site/calls", "/accounts/acme/usage"])
async def test_calls_are_sorted_and_filtered_by_cost_and_duration(console, path: str) -> None:
    async with console() as c:
        ids = await some_calls(c)
        reader = await c.as_("root", role="operator", acme="owner")
        await c.services.store.keys.create("acme")
        shown = await reader.get(path)
        assert listed(shown, ids) == ["free", "slow", "dear", "cheap"]
        by_cost = await reader.get(link(shown, "Cost USD"))
        assert listed(by_cost, ids) == ["dear", "slow", "cheap", "free"] and 'aria-sort="descending"' in by_cost.html
        assert listed(await reader.get(link(by_cost, "Took")), ids) == ["slow", "cheap", "dear", "free"]
        assert listed(await reader.get(link(by_cost, "When")), ids) == ["free", "slow", "dear", "cheap"]
        assert listed(await reader.get(f"{path}?least_cost=0.005"), ids) == ["slow", "dear"]
        assert listed(await reader.get(f"{path}?least_seconds=0.02&sort=cost"), ids) == ["dear", "slow", "cheap"]
        assert "No call fits" in (await reader.get(f"{path}?least_cost=5")).text
        for wrong in ("least_cost=x", "least_seconds=-1", "least_seconds=nan", "least_cost=-2", "behind=1.x.2"):
            assert len(listed(await reader.get(f"{path}?{wrong}"), ids)) == 4, wrong


@pytest.mark.holds("console.md#calls-1")
@pytest.mark.parametrize("path", ["/site/calls", "/accounts/acme/usage"])
async def test_pages_of_the_dearest_calls_have_each_of_them_once(console, path: str) -> None:
    async with console() as c:
        account = await history(c)
        ids = {
            str(n): account.call(ago(minutes=200 - n), 1_000_000 * (n % 40), duration_ms=n, model="fake-chat")
            for n in range(130)
        }
        account.flush()
        reader = await c.as_("root", role="operator", acme="owner")
        shown = await reader.get(f"{path}?sort=cost&least_seconds=0.003")
        seen = listed(shown, ids)
        while ">More</a>" in shown.html:
            shown = await reader.get(link(shown, "More"))
            seen += listed(shown, ids)
        assert seen == sorted(map(str, range(3, 130)), key=lambda n: (-(int(n) % 40), -int(n)))


@pytest.mark.holds("console.md#calls-2")
@pytest.mark.parametrize("path", ["/site/calls", "/accounts/acme/usage"])
async def test_page_says_which_part_was_searched_and_leads_to_the_older_one(
    console, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranked_calls, "MOST_LINES", 2)
    async with console() as c:
        ids = await some_calls(c)
        reader = await c.as_("root", role="operator", acme="owner")
        shown = await reader.get(f"{path}?sort=cost")
        assert listed(shown, ids) == ["slow", "free"] and "Searched are the newest lines, since" in shown.text
        shown = await reader.get(link(shown, "Search the older ones"))
        assert listed(shown, ids) == ["dear", "cheap"]
        shown = await reader.get(f"{path}?least_cost=0.9")
        assert "No call fits in the part that was searched" in shown.text
        assert listed(await reader.get(link(shown, "Search the older ones")), ids) == ["dear"]


@pytest.mark.holds("console.md#calls-1")
async def test_file_of_calls_has_those_that_cost_and_took_enough(console) -> None:
    async with console() as c:
        ids = await some_calls(c)
        owner = await c.as_("ann", acme="owner")
        file = (await owner.get("/accounts/acme/usage.csv?least_cost=0.005&least_seconds=1")).body.decode()
        assert ids["slow"] in file and len(file.splitlines()) == 2
        await owner.get("/accounts/acme/usage.csv?least_cost=x", 400)


async def test_member_sees_only_their_own_calls_in_each_order(console) -> None:
    async with console() as c:
        member = await c.user("max@example.com", acme="member")
        account = await history(c)
        ids = {
            name: account.call(ago(minutes=5), 1000, key=f"key_{name}", user=user)
            for name, user in (("own", member.id), ("other", "usr_x"))
        }
        account.flush()
        browser = await c.signed_in(member)
        assert listed(await browser.get("/accounts/acme/usage?sort=cost"), ids) == ["own"]
        await browser.get("/accounts/acme/usage?sort=cost&user=usr_x", 403)


@pytest.mark.holds("console.md#calls-3")
async def test_user_and_key_are_chosen_by_name_on_the_site_s_page(console) -> None:
    async with console() as c:
        keys, account = c.services.store.keys, await history(c)
        ids: dict[str, str] = {}
        for email, name in (("ann@example.com", "Ann"), ("anna@example.com", "Anna")):
            user = await c.user(email, acme="member")
            people = await c.services.people()
            await people.users.edit(ROOT, user.id, {"name": name})
            key = await keys.create("acme", name=f"laptop of {name}", user=user.id)
            ids[name] = account.call(ago(minutes=5), 1000, key=key.id, user=user.id)
        ids["nobody"] = account.call(ago(minutes=5), 1000, key="key_9")
        account.flush()
        viewer = await c.as_("eva", role="viewer")

        async def found(**query: Any) -> tuple[list[str], str]:
            shown = await viewer.get("/site/calls?" + "&".join(f"{name}={value}" for name, value in query.items()))
            return sorted(listed(shown, ids)), shown.text

        assert (await found(user="ann@example.com"))[0] == (await found(user="Ann"))[0] == ["Ann"]
        assert (await found(user="anna@"))[0] == ["Anna"]
        names, text = await found(user="example.com")
        assert names == [] and "Several users have “example.com”" in text and "Anna (anna@example.com)" in text
        assert "No user has “zoe”" in (await found(user="zoe"))[1]
        assert (await found(key="laptop of Ann", account="acme"))[0] == ["Ann"]
        assert (await found(key="laptop", user="anna@"))[0] == ["Anna"]
        names, text = await found(key="laptop", account="acme")
        assert names == [] and "Several keys have “laptop”" in text and "laptop of Anna" in text
        assert "fill in one of them" in (await found(key="laptop"))[1]
        assert (await found(key="key_9"))[0] == ["nobody"]
        assert "laptop of Ann" in (await found())[1], "the table names the keys"


async def test_user_is_found_by_the_whole_e_mail_or_name_among_many_who_have_a_part_of_it(console) -> None:
    async with console() as c:
        people, account, ids = await c.services.people(), await history(c), {}
        for number in range(30):
            user = await c.user(f"a{number:02}mary@example.com", acme="member")
            await people.users.edit(ROOT, user.id, {"name": f"Mary {number}"})
        mary = await c.user("mary@example.com", acme="member")
        await people.users.edit(ROOT, mary.id, {"name": "Mary"})
        ids["mary"] = account.call(ago(minutes=5), 1000, user=mary.id)
        account.flush()
        viewer = await c.as_("eva", role="viewer")
        for text in ("mary@example.com", "Mary", "mary", mary.id):
            assert listed(await viewer.get(f"/site/calls?user={text}"), ids) == ["mary"], text
        several = await viewer.get("/site/calls?user=mary&key=x")
        assert listed(several, ids) == []
        several = await viewer.get("/site/calls?user=ary")
        assert several.html.count('<li><a href="/site/calls?') >= 10 and "The first are" in several.text
        assert "No call fits" not in several.text, "it is not known yet whose calls are meant"


async def test_key_is_found_by_a_name_that_looks_like_an_id_and_a_search_in_part_says_so(
    console, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        keys, account, ids = c.services.store.keys, await history(c), {}
        key = await keys.create("acme", name="key_prod")
        ids["prod"] = account.call(ago(minutes=5), 1000, key=key.id)
        account.flush()
        viewer = await c.as_("eva", role="viewer")
        assert listed(await viewer.get("/site/calls?key=key_prod&account=acme"), ids) == ["prod"]
        monkeypatch.setattr(key_service, "READ_AT_MOST", 1)
        monkeypatch.setattr(key_service, "READ_AT_ONCE", 1)
        await keys.create("acme", name="newer")
        text = (await viewer.get("/site/calls?key=prod&account=acme")).text
        assert "None of the newest 1,000 keys of the account has “prod”" in text and "No key has" not in text


async def test_page_of_running_calls_does_not_call_it_quiet_while_a_machine_does_not_answer(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        assert "No call is running. Calls that" in (await operator.get("/site/running")).text
        c.workers.silent_machines = 1
        assert "No call is running on those that answer." in (await operator.get("/site/running")).text

"""Lists come in pages; objects that are added meanwhile neither repeat nor hide others."""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import msgspec.inspect
import pytest
from msgspec import structs

from gateway.admin_api.table import ROUTES
from gateway.config.settings import TargetSettings
from gateway.database.tables import ledger_lines
from gateway.history.line_row import facts_of, row_of
from gateway.ledger.line import read_lines
from tests.admin_api.both_databases import database_address, database_url
from tests.admin_api.client import ROOT, Api

__all__ = ["database_address", "database_url"]

LISTS = {
    "/accounts": "name",
    "/keys": "id",
    "/accounts/acme/keys": "id",
    "/users": "id",
    "/accounts/acme/members": "id",
    "/tokens": "id",
    "/audit-trail": "id",
    "/accounts/acme/lines": "balance",
}
numbers = itertools.count(1)


async def add_one_of_each(api: Api) -> None:
    """Add an object to every list, before and behind others."""
    n, store, people = next(numbers), api.services.store, await api.services.people()
    for place in ("aaa", "zzz"):
        await store.account_admin.create(ROOT, f"{place}-{n}")
        await store.keys.create(f"{place}-{n}")
        user = await people.users.create(ROOT, f"{place}{n}@example.com")
        await people.memberships.set(ROOT, user.id, "acme", "member")
    await store.keys.create("acme")
    await people.tokens.create(ROOT, f"token {n}", ["read"])
    await store.accounts.credit("acme", 1)


@pytest.mark.holds("admin-api.md#requests-and-answers-3")
@pytest.mark.slow
async def test_pages_have_every_object_once_while_others_are_added(api) -> None:
    async with api() as a:
        await a.as_operator()
        for _ in range(4):
            await add_one_of_each(a)
        for path, identity in LISTS.items():
            known = {found[identity] for found in (await a.get(f"{path}?limit=1000"))["data"]}
            assert len(known) >= 4, path
            first = await a.get(f"{path}?limit=3")
            await add_one_of_each(a)
            rest = await a.pages(f"{path}?limit=3", cursor=first["next_cursor"])
            found = Counter(item[identity] for item in (*first["data"], *rest))
            assert known <= found.keys() and set(found.values()) == {1}, path


async def test_states_of_targets_come_in_pages(api) -> None:
    async with api() as a:
        await a.as_operator()
        settings = a.services.settings
        one = settings.models["fake-chat"]
        targets = tuple(TargetSettings(provider="fake", model=name) for name in ("one", "two"))
        two = structs.replace(one, provider="", targets=targets)
        a.services.use(structs.replace(settings, models={"zeta": one, "alpha": two, "beta": two}))
        every = (await a.get("/models/health"))["data"]
        assert [form["upstream_model"] for form in every] == ["one", "two", "one", "two", "zeta"]
        for limit in (1, 2, 3):
            assert await a.pages(f"/models/health?limit={limit}") == every


async def test_cursor_of_another_list_is_refused(api) -> None:
    async with api() as a:
        await a.as_operator()
        cursor = (await a.get("/accounts?limit=1"))["next_cursor"]
        answer = await a.ask("GET", f"/users?cursor={cursor}")
        assert (answer.status, answer.error["param"]) == (400, "cursor")


@pytest.mark.holds("admin-api.md#routes-1")
async def test_lines_continue_in_the_database_and_end_with_the_sum_of_lost_ones(api) -> None:
    async with api() as a:
        await a.as_operator()
        store = a.services.store
        for _ in range(9):
            await store.accounts.credit("acme", 1)
        expected = (await a.get("/accounts/acme/lines"))["data"]
        lines = [line async for line in read_lines(store.store, "acme")]
        database = await a.services.database()
        with database.writing() as connection:
            rows = [row_of(line, b"", facts_of(line.meta_text)) for line in lines[:7]]
            connection.execute(ledger_lines.insert().values(rows))
        await store.store.client.xtrim("{a:acme}:lg", maxlen=5, approximate=False)
        assert await a.pages("/accounts/acme/lines?limit=2") == expected
        assert (await a.get("/accounts/acme/lines?limit=7"))["data"] == expected[:7]

        with database.writing() as connection:
            connection.execute(ledger_lines.delete().where(ledger_lines.c.seq <= 3))
        found = await a.pages("/accounts/acme/lines?limit=2")
        assert found[:-1] == expected[:7]
        assert (found[-1]["kind"], found[-1]["balance"]) == ("carry", expected[7]["balance"])


@pytest.mark.holds("admin-api.md#requests-and-answers-5")
async def test_fingerprint_finds_one_key_in_the_lists_of_the_site_and_of_its_account_only(api) -> None:
    async with api() as a:
        for name in ("one", "two"):
            await a.services.store.key_service.create(ROOT, "acme", name=name)
        store = a.services.store.store.client
        before = {name async for name in store.scan_iter("kh:*")}
        await a.services.store.key_service.create(ROOT, "acme", name="wanted")
        [entry] = {name async for name in store.scan_iter("kh:*")} - before
        found = entry.decode().removeprefix("kh:")
        a.token = await a.make_token("keys")
        for path, names in (("/keys", ["wanted"]), ("/accounts/acme/keys", ["wanted"]), ("/accounts/other/keys", [])):
            assert [one["name"] for one in (await a.get(f"{path}?fingerprint={found}"))["data"]] == names, path
            assert (await a.get(f"{path}?fingerprint={'0' * 64}"))["data"] == []


@pytest.mark.holds("admin-api.md#requests-and-answers-6", "security.md#scopes-of-admin-tokens-10")
async def test_filter_without_a_value_lists_nothing(api) -> None:
    """A script whose variable is empty would else revoke all keys of a list."""
    async with api() as a:
        await a.as_operator()
        for route in ROUTES:
            if route.query is None or route.method != "GET" or "{" in route.path:
                continue
            for field in structs.fields(route.query):
                answer = await a.ask("GET", f"{route.path}?{field.encode_name}=")
                if field.encode_name == "cursor":
                    assert answer.status == 200, route.path  # the first page
                    continue
                assert answer.status == 400, (route.path, field.encode_name)
                assert answer.error["param"] == field.encode_name


@pytest.mark.holds("admin-api.md#requests-and-answers-6", "security.md#scopes-of-admin-tokens-10")
@pytest.mark.parametrize("text", ["null", "NULL", "None", "none"])
async def test_filter_with_the_word_of_a_program_for_nothing_lists_only_what_has_this_name(api, text: str) -> None:
    """`jq -r` writes `null` for what is not there."""
    async with api() as a:
        await a.as_operator()
        for route in ROUTES:
            if route.query is None or route.method != "GET" or "{" in route.path:
                continue
            info = msgspec.inspect.type_info(route.query)
            assert isinstance(info, msgspec.inspect.StructType)
            for field in info.fields:
                if text_only(field.type):
                    continue
                answer = await a.ask("GET", f"{route.path}?{field.encode_name}={text}")
                assert answer.status == 400, (route.path, field.encode_name)
                assert answer.error["param"] == field.encode_name


def text_only(kind: msgspec.inspect.Type) -> bool:
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    return isinstance(kind, msgspec.inspect.StrType)

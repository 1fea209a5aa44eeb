"""Lone surrogates, NUL, U+FFFF and their like in every field of every body: the answer is no failure.

On SQLite and on PostgreSQL. A lone surrogate is refused in every text, so that no two names become equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import structs

from gateway.admin.actor import EVERYTHING, Actor
from gateway.admin_api.route import AdminRoute
from gateway.admin_api.table import ROUTES
from gateway.database.address import DatabaseAddress
from tests.admin_api.both_databases import database_address, database_url
from tests.admin_api.client import Api, NamedActors
from tests.admin_api.samples import Samples
from tests.extreme_texts import divided
from tests.strange_texts import LONE, MARKS, STRANGE, Place, places, with_text

__all__ = ["database_address", "database_url"]

WITH_BODY = [route for route in ROUTES if route.body is not None]
READ = [route for route in ROUTES if route.method == "GET" and not route.parameters]
ROOT = Actor(kind="token", id="tok_root", scopes=EVERYTHING)
TEXT = "text"  # in whose place strange ones stand
#: A row for each importer, by column.
TABLES: dict[str, dict[str, str]] = {
    "accounts": {"name": TEXT, "group": "default", "credit": "1", "operation": "first", "note": TEXT},
    "keys": {"account": "acme", "name": TEXT, "models": "short", "expires": "2030-01-01"},
    "users": {"email": "ann@example.com", "name": TEXT, "account": "acme", "role": "member"},
}


def places_of(route: AdminRoute, body: Any) -> Iterator[tuple[Any, Place]]:
    """Bodies of the route, and the place of a text in each: each field as a text and as a list, and what it has."""
    assert route.body is not None
    for field in structs.fields(route.body):
        yield {**body, field.encode_name: TEXT}, (field.encode_name,)
        yield {**body, field.encode_name: [TEXT]}, (field.encode_name, 0)
        yield {**body, field.encode_name: {TEXT: TEXT}}, (field.encode_name, TEXT, None)
        yield {**body, field.encode_name: {"default": TEXT}}, (field.encode_name, "default")
    yield {**body, TEXT: 1}, (TEXT, None)
    yield from ((body, place) for place in places(body) if len(place) > 1)


async def assert_no_failure(a: Api, method: str, path: str, content: bytes, *, is_lone: bool, number: int) -> None:
    """The answer is none; and it is a refusal if the body has a lone surrogate."""
    answer = await a.ask(method, path, raw=content, headers={"Idempotency-Key": f"strange-{number}"})
    assert answer.status < 500, (path, content[:1000], answer.document)
    assert answer.status >= 400 or not is_lone, (path, content[:1000], answer.document)


async def assert_served(a: Api) -> None:
    """Every list is."""
    for route in READ:
        answer = await a.ask("GET", route.path + ("?model=short" if "explanations" in route.path else ""))
        assert answer.status < 500, (route.path, answer.document)
    assert (await a.ask("GET", "/accounts")).status == 200


async def send_all(a: Api, texts: Mapping[str, bytes], database: DatabaseAddress | None = None) -> None:
    """Send each text in each place of the body of each route; with a database, those that it has of both kinds."""
    samples, number, at = Samples(a), 0, 0
    for route in WITH_BODY:
        sample = await samples.of(route)
        for body, place in places_of(route, sample.body):
            at += 1
            for name, text in divided(texts.items(), database, at) if database is not None else texts.items():
                number += 1
                content = with_text(body, place, text)
                await assert_no_failure(a, route.method, sample.path, content, is_lone=name in LONE, number=number)
    await assert_served(a)


@pytest.fixture
def many_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """More changes in a minute than a token may make."""
    monkeypatch.setattr("gateway.admin_api.api.MOST_CHANGES_OF_SITE", 1_000_000)


@pytest.mark.holds("admin-api.md#requests-and-answers-2")
@pytest.mark.usefixtures("many_changes")
async def test_strange_text_in_any_field_is_no_failure(api: Any) -> None:
    """Each place has a lone surrogate and U+FFFF."""
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        await send_all(a, {name: STRANGE[name] for name in ("first surrogate", "U+FFFF")})


@pytest.mark.slow
@pytest.mark.usefixtures("many_changes")
async def test_each_strange_text_in_any_field_is_no_failure(api: Any, database_address: DatabaseAddress) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        await send_all(a, STRANGE, database_address)


@pytest.mark.slow
@pytest.mark.usefixtures("many_changes")
async def test_mebibyte_of_combining_marks_in_any_field_is_no_failure(
    api: Any, database_address: DatabaseAddress
) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        await send_all(a, {"marks": MARKS}, database_address)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.usefixtures("many_changes")
async def test_strange_text_in_any_cell_of_an_import_is_no_failure(api: Any, kind: str) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        row, number = TABLES[kind], 0
        for text, string in STRANGE.items():
            for column in (*row, ""):
                head = ",".join(TEXT if not column else name for name in row)
                cells = ",".join(TEXT if name == column else value for name, value in row.items())
                table = json.dumps({"content": f"{head}\n{cells}\n"}).encode()
                number += 1
                content = table.replace(TEXT.encode(), string[1:-1])
                await assert_no_failure(a, "POST", f"/imports/{kind}", content, is_lone=text in LONE, number=number)
        await assert_served(a)


async def test_names_that_differ_in_a_lone_surrogate_are_both_refused(api: Any) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        for text in LONE:
            for path, body, place in (
                ("/accounts/acme/keys", {"name": TEXT}, ("name",)),
                ("/users", {"email": "ann@example.com", "name": TEXT}, ("name",)),
                ("/accounts", {"name": TEXT}, ("name",)),
            ):  # fmt: skip
                answer = await a.ask("POST", path, raw=with_text(body, place, STRANGE[text]))
                assert answer.status == 400, (path, text, answer.document)
        assert (await a.get("/accounts/acme/keys"))["data"] == []
        assert (await a.get("/users"))["data"] == []

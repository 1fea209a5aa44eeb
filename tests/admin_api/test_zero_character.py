"""The character U+0000, which PostgreSQL cannot store, is refused before it reaches a database of either kind."""

from __future__ import annotations

import pytest
from msgspec import structs

from gateway.admin.actor import EVERYTHING, Actor
from gateway.admin_api.pagination import write_cursor
from gateway.admin_api.table import ROUTES
from tests.admin_api.both_databases import database_address, database_url
from tests.admin_api.client import NamedActors

__all__ = ["database_address", "database_url"]

ZERO = "a%00b"
ROOT = Actor(kind="token", id="tok_test", scopes=EVERYTHING)
KEY = {"Idempotency-Key": "k"}


@pytest.mark.holds("admin-api.md#requests-and-answers-2")
@pytest.mark.slow
async def test_zero_character_is_not_found_in_a_path_and_refused_in_queries_and_bodies_of_every_route(api) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        key = (await a.services.store.keys.create("acme")).id
        for route in ROUTES:
            values = {name: key if name == "key" else "acme" for name in route.parameters}
            for name in values:
                path = route.path.format(**{**values, name: ZERO})
                answer = await a.ask(route.method, path, headers=KEY)
                assert (answer.status, answer.error["code"]) == (404, "unknown_url"), (route.method, path)
            path = route.path.format(**values)
            for field in structs.fields(route.query) if route.query is not None else ():
                answer = await a.ask(route.method, f"{path}?{field.encode_name}={ZERO}", headers=KEY)
                assert (answer.status, "U+0000" in answer.error["message"]) == (400, True), (path, field.name)
            if route.body is not None:
                answer = await a.ask(route.method, path, {"name": "a\0b"}, headers=KEY)
                assert (answer.status, "U+0000" in answer.error["message"]) == (400, True), path


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/users?cursor=" + write_cursor("users", ["a\0b"]), 400),
        ("/usage?model=a%00b", 400),
        ("/audit-trail?actor=a%00b", 400),
        ("/users/a%00b", 404),
    ],
)
async def test_zero_character_in_an_address_is_no_failure(api, path: str, status: int) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        assert (await a.ask("GET", path, token="root")).status == status


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/users", {"email": "ann@example.com", "name": "a\0b"}),
        ("/accounts/acme/credits", {"amount": "5", "note": "a\0b"}),
        ("/imports/users", {"content": "email,name\nann@example.com,a\0b\n"}),
        ("/imports/litellm", {"config": {"model_list": [{"a\0b": 1}]}}),
    ],
)
async def test_zero_character_in_a_body_is_refused(api, path: str, body: dict[str, object]) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        answer = await a.ask("POST", path, body, token="root", headers=KEY)
        assert (answer.status, "U+0000" in answer.error["message"]) == (400, True), answer.document


async def test_backslash_before_u0000_is_text_like_any_other(api) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        name = r"back\u0000slash"
        user = await a.post("/users", {"email": "ann@example.com", "name": name}, token="root")
        assert user["name"] == name

"""Every parameter of the query of every route takes any text, on SQLite and on PostgreSQL: the answer is no failure."""

from __future__ import annotations

import inspect
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec import structs

from gateway.admin.actor import EVERYTHING, Actor
from gateway.admin_api.route import AdminRoute
from gateway.admin_api.table import ROUTES
from gateway.database.address import DatabaseAddress
from tests.admin_api.both_databases import database_address, database_url
from tests.admin_api.client import NamedActors
from tests.admin_api.samples import Samples
from tests.extreme_texts import MOMENTS, TEXTS, cursor, cursors, divided

__all__ = ["database_address", "database_url"]

QUERIED = [route for route in ROUTES if route.query is not None]
ROOT = Actor(kind="token", id="tok_root", scopes=EVERYTHING)


def kind_of_cursor(route: AdminRoute) -> str:
    """The name that the route's module gives its lists."""
    module = inspect.getmodule(route.function)
    found = re.search(r'read_cursor\("([^"]+)"', inspect.getsource(module)) if module is not None else None
    return found[1] if found is not None else "other"


@pytest.mark.holds("admin-api.md#requests-and-answers-4")
@pytest.mark.slow
@pytest.mark.parametrize("route", QUERIED, ids=lambda route: f"{route.method} {route.path}")
async def test_no_text_of_a_parameter_is_a_failure(
    api: Any, route: AdminRoute, database_address: DatabaseAddress
) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        path = (await Samples(a).of(route)).path.partition("?")[0]
        assert route.query is not None
        for at, field in enumerate(structs.fields(route.query), QUERIED.index(route)):
            texts = [*TEXTS, *(cursors(kind_of_cursor(route)) if field.encode_name == "cursor" else ())]
            for text in divided(texts, database_address, at):
                answer = await a.ask(route.method, f"{path}?{urlencode({field.encode_name: text})}")
                assert answer.status < 500, (field.encode_name, text[:100], answer.document)


@pytest.mark.holds("admin-api.md#requests-and-answers-4")
@pytest.mark.parametrize("number", [-1, -(2**63), 2**63, 2**64 - 1])
async def test_number_of_a_cursor_that_the_database_has_not_is_refused(api: Any, number: int) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        for path, position in (
            ("/superseded-lines", ["superseded", number]), ("/refused-settlements", ["refused", number]),
            ("/calls", ["calls", number, "x"]), ("/keys", ["keys", "acme", number, "key_x"]),
        ):  # fmt: skip
            answer = await a.ask("GET", f"{path}?cursor={cursor(position)}")
            assert (answer.status, answer.error["param"]) == (400, "cursor"), path


@pytest.mark.holds("admin-api.md#requests-and-answers-4")
@pytest.mark.parametrize("moment", MOMENTS)
async def test_time_that_cannot_be_computed_with_is_refused_in_queries_and_bodies(api: Any, moment: str) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        a.token = "root"
        for path, name in (
            ("/usage", "from"), ("/usage", "to"), ("/refusals", "since"), ("/refusals", "until"),
            ("/keys", "unused_since"), ("/audit-trail", "since"), ("/accounts/acme/lines", "since"),
        ):  # fmt: skip
            answer = await a.ask("GET", f"{path}?{urlencode({name: moment})}")
            assert (answer.status, answer.error["param"]) == (400, name), path
            assert "the year is between 1970 and 9998" in answer.error["message"]
        for path, body in (("/accounts/acme/keys", {}), ("/tokens", {"name": "ci", "scopes": ["read"]})):
            answer = await a.ask("POST", path, {**body, "expires": moment})
            assert (answer.status, answer.error["param"]) == (400, "expires"), path

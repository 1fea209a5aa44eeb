"""Every parameter that a page reads of its address takes any text, on SQLite and on PostgreSQL: no page fails."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlencode

import pytest

from gateway.console.table import ROUTES
from gateway.console.visit import Visit
from gateway.database.address import DatabaseAddress
from tests.admin_api.both_databases import database_address, database_url
from tests.console.history import ago, calls
from tests.console.samples import Samples
from tests.extreme_texts import TEXTS, divided

__all__ = ["database_address", "database_url"]

#: They wait for providers and local servers, and read nothing of their addresses that a person types.
WAITING = {"/site/connect", "/sign-in/oidc/{provider}/callback", "/accounts/{account}/playground/calls/{request_id}"}
PAGES = [route for route in ROUTES if route.method == "GET" and route.path not in WAITING]
FEW = 21  # texts of which a page tries one, where the same line of the code has been tried on another page
Place = tuple[str, int, str]  # a line that reads a parameter, and its name


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> set[Place]:
    """Where pages have read parameters."""
    places: set[Place] = set()
    for method in ("query", "queries", "carried"):
        own = getattr(Visit, method)

        def read(visit: Visit, name: str, own: Any = own) -> Any:
            caller = sys._getframe(1)
            places.add((caller.f_code.co_filename, caller.f_lineno, name))
            return own(visit, name)

        monkeypatch.setattr(Visit, method, read)
    return places


@pytest.mark.holds("console.md#security-9")
@pytest.mark.slow
async def test_no_text_of_a_parameter_is_a_failure(
    console: Any, database_address: DatabaseAddress, reads: set[Place]
) -> None:
    async with console() as c:
        await calls(c, *[ago(minutes=5 + number) for number in range(3)])
        user = await c.user("root@example.com", role="operator", acme="owner")
        browser, samples = await c.signed_in(user), Samples(c)
        tried: set[Place] = set()
        for number, route in enumerate(PAGES):
            path = (await samples.of(route, user)).path.partition("?")[0]
            reads.clear()
            await browser.ask("GET", path)
            places = set(reads)
            new = {name for *_, name in places - tried}
            tried |= places
            for at, name in enumerate(sorted({name for *_, name in places}), number):
                for text in divided(TEXTS, database_address, at) if name in new else TEXTS[at % FEW :: FEW]:
                    shown = await browser.ask("GET", f"{path}?{urlencode({name: text})}")
                    assert shown.status < 500, (route.path, name, text[:100])


@pytest.mark.holds("console.md#security-9")
@pytest.mark.slow
@pytest.mark.parametrize("path", ["/accounts/acme/usage", "/accounts/acme/usage.csv", "/site/calls"])
async def test_no_place_in_a_ranked_list_is_a_failure(
    console: Any, path: str, database_address: DatabaseAddress
) -> None:
    orders = ("cost", "duration")
    async with console() as c:
        await calls(c, *[ago(minutes=5 + number) for number in range(3)])
        browser = await c.as_("root", role="operator", acme="owner")
        for number, text in enumerate(divided(TEXTS, database_address, 0)):
            for at, name in enumerate(("behind", "older", "before", "least_cost", "least_seconds"), number):
                for order in orders if path.endswith(".csv") else orders[at % 2 :][:1]:  # one parser reads all
                    shown = await browser.ask("GET", f"{path}?{urlencode({'sort': order, name: text})}")
                    assert shown.status < 500, (name, text[:100], order)


@pytest.mark.holds("console.md#security-9")
async def test_seconds_are_decimal_text(console: Any) -> None:
    async with console() as c:
        [call] = await calls(c, ago(minutes=5))  # of 300 ms
        member = await c.as_("ann", acme="owner")
        for text, is_shown in (("0.3", True), ("0.301", False), ("0", True), ("0.29999", True)):
            page = await member.get(f"/accounts/acme/usage?least_seconds={text}")
            assert (call in page.html) == is_shown, text
        for text in ("9e999999", "1_0", "\u0661", "-1", "NaN", "9" * 13, "1000001"):
            page = await member.get(f"/accounts/acme/usage?{urlencode({'least_seconds': text})}")
            assert "Expected an amount such as 0.05 and seconds such as 2.5" in page.text, text

"""A token makes a limited number of changes in some minutes."""

from __future__ import annotations

import pytest

from gateway.admin_api import api as admin_api
from tests.admin_api.client import Api


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of changes that a token of one account makes."""
    monkeypatch.setattr(admin_api, "MOST_CHANGES", 3)
    monkeypatch.setattr(admin_api, "MOST_CHANGES_OF_SITE", 5)
    return 3


async def keys(a: Api) -> int:
    return len(await a.services.store.keys.list("acme"))


@pytest.mark.holds("admin-api.md#limits-of-changes-1", "security.md#shares-2")
async def test_token_of_an_account_makes_a_limited_number_of_changes(api, few: int) -> None:
    async with api() as a:
        a.token = await a.make_token("keys", account="acme")
        for _ in range(2):
            assert (await a.ask("POST", "/accounts/acme/credits", {"amount": "1"})).status == 403
        for _ in range(few):
            await a.post("/accounts/acme/keys", {})
        for body in ({}, {"name": "x" * 2**19}):
            refused = await a.ask("POST", "/accounts/acme/keys", body)
            assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
            assert 590 < int(refused.headers["Retry-After"]) <= 600
            assert "3 changes in a short time; go on in 10 minutes" in refused.error["message"]
        assert await keys(a) == few
        assert len((await a.get("/accounts/acme/keys"))["data"]) == few  # reading is not limited
        other = await a.make_token("keys", account="acme")
        await a.post("/accounts/acme/keys", {}, token=other)
        assert (await a.ask("DELETE", "/token")).status == 200


@pytest.mark.holds("admin-api.md#limits-of-changes-1")
async def test_token_of_the_site_makes_many_more_changes(api, few: int) -> None:
    async with api() as a:
        await a.as_operator()
        statuses = [(await a.ask("POST", "/accounts/acme/keys", {})).status for _ in range(6)]
        assert statuses == [201] * 5 + [429]


@pytest.mark.holds("admin-api.md#limits-of-changes-1")
async def test_changes_can_go_on_after_the_time_that_the_answer_says(
    api, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("gateway.web.window_counts.monotonic", lambda: now[0])
    async with api() as a:
        a.token = await a.make_token("keys", account="acme")
        statuses = [(await a.ask("POST", "/accounts/acme/keys", {})).status for _ in range(few)]
        now[0] += 100
        refused = await a.ask("POST", "/accounts/acme/keys", {})
        now[0] += int(refused.headers["Retry-After"])
        statuses += [refused.status, (await a.ask("POST", "/accounts/acme/keys", {})).status]
        assert statuses == [201] * few + [429, 201]

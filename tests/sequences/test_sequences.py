"""No short sequence of requests gives a token anything of another scope; the walks try every route, and can fail."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin_api.table import ROUTES as API
from gateway.console.table import ROUTES as PAGES
from gateway.people import memberships
from tests.sequences.steps import OTHER_WALKS, SLOW, api_steps, page_steps, routes_of
from tests.sequences.walks import walk_of_token


def test_steps_try_every_route() -> None:
    tried = routes_of(api_steps())
    left = {f"{route.method} {route.path}" for route in API if route.operation_id not in SLOW} - tried
    assert left == set()
    pages = {f"{route.method} {route.path}" for route in PAGES if not route.path.startswith(OTHER_WALKS)}
    assert {path for path in pages - routes_of(page_steps()) if "playground" not in path} == set()


@pytest.mark.parametrize(("scope", "only"), [("accounts", "accounts_"), ("users", "members_set")])
async def test_two_requests_of_a_token_of_one_account_gain_nothing(console: Any, scope: str, only: str) -> None:
    assert (await walk_of_token(console, scope, account="acme", length=2, only=only)).gained == {}


@pytest.mark.holds("security.md#scopes-of-admin-tokens-9")
async def test_walk_finds_what_a_missing_rule_allows(console: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memberships, "require_role", lambda *args, **kwargs: None)
    walked = await walk_of_token(console, "users", account="acme", length=1, only="members_set")
    assert "PUT /accounts/acme/members/{max} {'role': 'owner'}" in walked.gained

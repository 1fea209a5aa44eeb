"""A token of one account learns and changes nothing of another one, whatever it sends: each route of the table."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gateway.admin.actor import EVERYTHING
from gateway.admin.audit_trail import AuditFilter
from gateway.admin_api.table import ROUTES
from tests.admin_api.client import ROOT, Api
from tests.admin_api.samples import Samples

IDS = re.compile(r"\b(?:key|usr|inv|req|tok|evt)_[a-z0-9]+")
OWN = "/token"  # is about the token itself


async def stored(a: Api) -> tuple[Any, ...]:
    """What the requests might change: the account, its keys, the running calls, and the newest event of all."""
    services, people = a.services, await a.services.people()
    account, keys = await services.store.accounts.show("acme"), await services.store.keys.list("acme")
    events = await people.audit_trail.list(ROOT, AuditFilter(), limit=1)
    return account, keys, sorted(a.workers.calls), [event.id for event in events]


@pytest.mark.holds("security.md#accounts-and-sessions-1")
@pytest.mark.slow
async def test_token_of_one_account_learns_and_changes_nothing_of_another_on_any_route(api: Any) -> None:
    """The ids in the requests are real ones of the account acme; the token has all scopes in the account other."""
    async with api() as a:
        token, samples = await a.make_token(*(EVERYTHING - {"config"}), account="other"), Samples(a)
        own = set(IDS.findall(json.dumps(await a.get("/audit-trail", token=token))))  # before there is anything in acme
        asked, answered = 0, 0
        for route in ROUTES:
            if route.path == OWN or route.access.public:
                continue
            sample = await samples.of(route)
            before = await stored(a)
            answer = await a.ask(route.method, sample.path, sample.body, headers=sample.headers, token=token)
            where, request = f"{route.method} {route.path}", f"{sample.path} {json.dumps(sample.body)}"
            assert answer.status in (200, 403, 404), where
            assert await stored(a) == before, where
            text = json.dumps(answer.document)
            if answer.status == 200:
                assert set(IDS.findall(text)) - set(IDS.findall(request)) <= own, where
                assert "acme" not in text, where
            asked, answered = asked + 1, answered + (answer.status == 200)
        assert asked > 60 and answered > 4

"""A sample request for every route, which an operator may send with success."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.admin_api.route import Route
from gateway.ledger.api_key import ApiKey
from tests.admin_api.client import ROOT, Api
from tests.ledger.records import quote_of, settle

UNIT = 1_000_000_000

#: Bodies by operation; every operation with a body has one.
BODIES: Mapping[str, Any] = {
    "accounts_create": {"name": "new-{n}", "group": "vip"},
    "accounts_move": {"group": "default"},
    "accounts_allow": {"models": ["short"]},
    "accounts_deny": {"models": ["fake-chat"]},
    "accounts_limit": {"concurrency": 50, "monthly": "10.5", "tpm": None},
    "accounts_credit": {"amount": "1.5", "note": "by hand"},
    "accounts_refund": {"request_id": "{charge}", "amount": "0.000000001"},
    "keys_create": {"name": "ci", "budget": "5", "every": "month", "models": ["short"], "endpoints": ["chat"]},
    "keys_edit": {"name": "edited", "rpm": 5, "budget": None},
    "keys_rotate": {"overlap": 60},
    "member_keys_create": {"name": "ci", "models": ["short"]},
    "member_keys_change_budget": {"budget": "5", "every": "month"},
    "members_set": {"role": "owner"},
    "members_invite": {"email": "invited@example.com"},
    "members_invite_to_site": {"email": "invited@example.com"},
    "users_create": {"email": "new{n}@example.com", "name": "New"},
    "users_edit": {"name": "Edited"},
    "tokens_create": {"name": "ci", "scopes": ["read"]},
    "audits_run": {"account": "acme"},
}


class Sample(Struct, frozen=True):
    """A request."""

    path: str
    body: Any
    headers: dict[str, str]


class Samples:
    """Makes samples; each has objects of its own, so that it can be sent whatever was sent before."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._numbers = itertools.count(1)

    async def of(self, route: Route, *, account: str = "acme") -> Sample:
        """The sample of a route, about objects of the account."""
        n = next(self._numbers)
        values = {name: await self._value(name, account, n) for name in route.parameters}
        if "/members/{user}" in route.path:  # an owner changes members only, and others have no keys
            people = await self._api.services.people()
            await people.memberships.set(ROOT, values["user"], account, "member")
        charge = await self.charge(account) if route.operation_id == "accounts_refund" else ""
        body = None
        if route.body is not None:
            body = _filled(BODIES[route.operation_id], n=n, charge=charge)
        headers = {"Idempotency-Key": f"sample-{n}"} if route.moves_money else {}
        return Sample(route.path.format(**values), body, headers)

    async def _value(self, name: str, account: str, n: int) -> str:
        services = self._api.services
        if name == "account":
            return account
        if name == "key":
            return (await services.store.keys.create(account)).id
        if name == "request_id":
            return self._api.workers.start(f"req_{n:032x}", account)
        people = await services.people()
        if name == "user":
            return (await people.users.create(ROOT, f"user{n}@example.com")).id
        if name == "invitation":
            made = await people.invitations.to_account(ROOT, f"user{n}@example.com", account, "member")
            return made.invitation.id
        assert name == "token", f"no sample of {name}"
        return (await people.tokens.create(ROOT, "test", ["read"])).record.id

    async def charge(self, account: str) -> str:
        """The id of a settled call."""
        store = self._api.services.store
        await store.accounts.credit(account, UNIT)
        key = await store.keys.create(account)
        request_id = f"req_{next(self._numbers):032x}"
        hold = await store.ledger.admit(request_id, ApiKey(account, key.id), quote_of())
        await settle(store.ledger, hold, 500)
        return request_id


def _filled(value: Any, **values: Any) -> Any:
    if isinstance(value, str):
        return value.format(**values)
    if isinstance(value, dict):
        return {name: _filled(item, **values) for name, item in value.items()}
    return [_filled(item, **values) for item in value] if isinstance(value, list) else value

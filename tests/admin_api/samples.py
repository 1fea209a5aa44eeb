"""A sample request for every route, which an operator may send with success."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.admin.times import to_micros
from gateway.admin_api.route import AdminRoute
from gateway.database.tables import statements
from gateway.ledger.api_key import ApiKey
from gateway.reports.statement import ChargedKey, Movement, Statement
from tests.admin_api.client import ROOT, Api
from tests.batches.made import made_batch
from tests.ledger.records import quote_of, settle

UNIT = 1_000_000_000

#: Bodies by operation; every operation with a body has one.
BODIES: Mapping[str, Any] = {
    "accounts_create": {"name": "new-{n}"},
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
    "members_set": {"role": "member"},
    "members_invite": {"email": "invited@example.com"},
    "members_invite_to_site": {"email": "invited@example.com"},
    "users_create": {"email": "new{n}@example.com", "name": "New"},
    "users_edit": {"name": "Edited"},
    "tokens_create": {"name": "ci", "scopes": ["read"]},
    "audits_run": {"account": "acme"},
    "statements_make": {"month": "2026-01"},
    "prices_set": {"factor": "0.8"},
    "refused_book": {"all": True},
    "superseded_book": {"all": True},
    "superseded_acknowledge": {"all": True, "account": "acme", "note": "by hand"},
    "imports_accounts": {"content": "name,credit,operation\nimported-{n},1.5,first\n"},
    "imports_keys": {"content": "account,name\nacme,imported-{n}\n"},
    "imports_users": {"content": "email,account\nimported{n}@example.com,acme\n", "dry_run": True},
    "imports_litellm": {"config": {"model_list": []}},
    "configuration_check": {"offline": True},
    "configuration_reload": {"force": True},
    "notifications_retry": {},
    "notifications_set_threshold": {"balance_low": "2.5"},
}
#: Queries by operation, for those that need one.
QUERIES = {"calls_show": "?account={account}", "explanations_explain": "?model=short&stream=true"}
#: Values of parameters that need no object.
VALUES = {"model": "fake-chat", "month": "2026-01"}


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

    async def of(self, route: AdminRoute, *, account: str = "acme") -> Sample:
        """The sample of a route, about objects of the account."""
        n = next(self._numbers)
        values = {name: await self._value(name, account, n) for name in route.parameters}
        if "/members/{user}" in route.path:  # an owner changes members only, and others have no keys
            people = await self._api.services.people()
            await people.memberships.set(ROOT, values["user"], account, "member")
        charge = await self.charge(account) if route.operation_id in ("accounts_refund", "calls_show") else ""
        if route.operation_id == "calls_show":
            values["request_id"] = charge
        if "/statements" in route.path:
            await self.statement(account)
        body = None
        if route.body is not None:
            body = _filled(BODIES[route.operation_id], n=n, charge=charge)
        headers = {"Idempotency-Key": f"sample-{n}"} if route.moves_money else {}
        query = QUERIES.get(route.operation_id, "").format(account=account)
        return Sample(route.path.format(**values) + query, body, headers)

    async def _value(self, name: str, account: str, n: int) -> str:
        services = self._api.services
        if name in VALUES:
            return VALUES[name]
        if name == "account":
            return account
        if name == "key":
            return (await services.store.keys.create(account)).id
        if name == "batch":
            return (await made_batch(services.store.store, account)).id
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

    async def statement(self, account: str) -> None:
        """A final statement of January 2026, stored once."""
        database = await self._api.services.database()
        january, february = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
        charged = [ChargedKey("fake-chat", "key_1", "ci", 1, 10, 5, UNIT, 0)]
        movement = Movement(january, "credits", 1, "op-1", 2 * UNIT, note="paid")
        final = Statement(
            account=account, month="2026-01", since=january, until=february, opening_balance=0, closing_balance=UNIT,
            credits=2 * UNIT, charges=UNIT, charged=charged, movements=[movement], number=1, fixed=february,
        )  # fmt: skip
        document = msgspec.json.encode(final)
        row = {
            "number": 1, "account": account, "month": to_micros(january), "closing_balance": UNIT, "last_seq": 0,
            "last_hash": b"", "document": document.decode(), "hash": hashlib.sha256(document).digest(),
            "fixed_at": to_micros(february),
        }  # fmt: skip
        with database.writing() as connection:
            connection.execute(database.insert(statements).values(row).on_conflict_do_nothing())

    async def charge(self, account: str) -> str:
        """The id of a settled call."""
        store = self._api.services.store
        await store.accounts.credit(account, UNIT)
        key = await store.keys.create(account)
        request_id = f"req_{next(self._numbers):032x}"
        await store.ledger.terms.read(account)  # the account may have had prices of its own
        quote = structs.replace(quote_of(), terms=store.ledger.terms.of(account).terms)
        hold = await store.ledger.admit(request_id, ApiKey(account, key.id), quote)
        await settle(store.ledger, hold, 500)
        return request_id


def _filled(value: Any, **values: Any) -> Any:
    if isinstance(value, str):
        return value.format(**values)
    if isinstance(value, dict):
        return {name: _filled(item, **values) for name, item in value.items()}
    return [_filled(item, **values) for item in value] if isinstance(value, list) else value

"""What an attacker sends: requests of the admin API with a token, and forms of the console in a browser."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import aiohttp
from msgspec import Struct

from gateway.admin_api.route import AdminRoute
from gateway.admin_api.table import ROUTES as API
from gateway.console.audience import OF_ACCOUNTS
from gateway.console.route import PageRoute
from gateway.console.table import ROUTES as PAGES
from tests.sequences.world import MAILBOX

_numbers = itertools.count(1)
ACCOUNTS = ("acme", "other")
PEOPLE = ("pia", "max", "olga", "new")  # `new`: a user who was made before
ROLES = ("member", "owner")
GUEST = "guest{n}@evil.test"


class Step(Struct, frozen=True):
    """A request; names in braces are those of `World.ids`, {n} is a new number, {new} a user who was made before."""

    label: str
    route: Any
    method: str
    path: str
    body: Any = None

    def filled(self, names: Mapping[str, str]) -> tuple[str, Any] | None:
        """Path and body; None if there is no such object."""
        if "{new}" in self.path and "new" not in names:
            return None
        names = {**names, "n": str(next(_numbers))}
        return self.path.format_map(names), _filled(self.body, names)


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return value.format_map(names) if "{" in value else value
    if isinstance(value, dict):
        return {name: _filled(item, names) for name, item in value.items()}
    return [_filled(item, names) for item in value] if isinstance(value, list) else value


#: Bodies by operation, if there are several or one is needed.
BODIES: Mapping[str, list[Any]] = {
    "accounts_create": [
        {"name": "made{n}"},
        {"name": "made{n}", "group": "vip"},
        {"name": "made{n}", "balance": "5"},
    ],
    "accounts_move": [{"group": "vip"}],
    "accounts_allow": [{"models": ["tiny"]}],
    "accounts_deny": [{"models": ["fake-chat"]}],
    "accounts_limit": [{"rpm": 900}, {"monthly": None}, {"floor": "-100"}],
    "accounts_credit": [{"amount": "5"}],
    "accounts_refund": [{"request_id": "{charge}"}],
    "keys_create": [{"name": "made"}],
    "keys_edit": [{"rpm": None}],
    "keys_rotate": [{"overlap": 60}],
    "member_keys_create": [{"name": "made"}],
    "member_keys_change_budget": [{"budget": "5", "every": "month"}],
    "members_set": [{"role": role} for role in ROLES],
    "members_invite": [{"email": GUEST, "role": role} for role in ROLES],
    "members_invite_to_site": [{"email": GUEST, "role": role} for role in ("none", "viewer", "operator")],
    "users_create": [{"email": GUEST, "role": role} for role in ("none", "operator")],
    "users_edit": [{"email": "mail{n}@" + MAILBOX}, {"role": "operator"}, {"second_factor": "removed"}],
    "tokens_create": [{"name": "made", "scopes": ["read", "credits"]}],
    "audits_run": [{"account": "acme"}],
    "statements_make": [{"month": "2026-01"}],
    "prices_set": [{"factor": "0"}],
    "refused_book": [{"all": True}],
    "imports_accounts": [{"content": "name,group\nacme,vip\n"}],
    "imports_keys": [{"content": "account,name\nacme,imported\n"}],
    "imports_users": [{"content": "email,account,role\nimported@evil.test,acme,owner\n"}],
    "imports_litellm": [{"config": {"model_list": []}}],
    "configuration_check": [{"offline": True}],
    "configuration_reload": [{}],
    "notifications_retry": [{}],
    "notifications_set_threshold": [{"balance_low": "2"}],
}
VALUES: Mapping[str, tuple[str, ...]] = {
    "account": ACCOUNTS,
    "key": ("{key}", "{key_olga}", "{key_max}", "{key_other}"),
    "user": tuple(f"{{{name}}}" for name in (*PEOPLE, "vera")),
    "invitation": ("{invitation}",),
    "token": ("{token}",),
    "request_id": ("{call}",),
    "batch": ("{batch}",),
    "model": ("fake-chat",),
    "month": ("2026-01",),
}
QUERIES = {"explanations_explain": "?model=fake-chat", "calls_show": "?account=acme"}
#: Routes that are tried about one object of a kind only: what they do says nothing about others.
FEW = {"users_end_sessions", "users_end_identities", "users_sessions", "users_identities", "member_keys_list"}
#: Routes without an effect on rights, which are slow.
SLOW = {"configuration_check", "catalog_plugins", "notifications_test"}


def api_steps() -> list[Step]:
    """A request for every route of the admin API, and several where objects and bodies differ in what they give."""
    found = []
    for route in API:
        if route.operation_id in SLOW:
            continue
        names = route.parameters
        values = [VALUES[name] if route.operation_id not in FEW else VALUES[name][:1] for name in names]
        if "/members/{user}" in route.path:
            values[names.index("account")] = ACCOUNTS[:1]
        for chosen in itertools.product(*values):
            path = route.path.format(**dict(zip(names, chosen, strict=True))) + QUERIES.get(route.operation_id, "")
            for body in BODIES.get(route.operation_id, [None]):
                label = f"{route.method} {path}{f' {body}' if body else ''}"
                found.append(Step(label, route, route.method, path, body))
    return found


#: Forms by path of the console.
FORMS: Mapping[str, list[dict[str, str]]] = {
    "/accounts/{account}/keys/new": [{"name": "made"}],
    "/accounts/{account}/keys/{key}": [{"name": "renamed", "rpm": "900"}],
    "/accounts/{account}/keys/{key}/rotate": [{"overlap": "24"}],
    "/accounts/{account}/members": [{"email": GUEST, "role": role} for role in ROLES],
    "/accounts/{account}/members/{user}/role": [{"role": role} for role in ROLES],
    "/accounts/{account}/members/{user}/budget": [{"budget": "5", "every": "month"}],
    "/accounts/{account}/notifications": [{"balance_low": "2"}],
    "/profile/name": [{"name": "Renamed"}],
    "/site/new-account": [{"name": "made{n}", "group": "vip", "balance": "5"}],
    "/site/accounts/{account}/credit": [{"amount": "5", "operation": "op{n}"}],
    "/site/accounts/{account}/group": [{"group": "vip"}],
    "/site/accounts/{account}/limits": [{"floor": "-100", "rpm": "900"}],
    "/site/accounts/{account}/models": [{"models": "tiny", "rule": "allow"}],
    "/site/new-user": [{"email": GUEST, "role": "operator"}, {"email": GUEST, "account": "acme"}],
    "/site/users/{user}/role": [{"role": "operator"}],
    "/site/users/{user}/memberships": [{"account": "acme", "role": "owner"}],
    "/site/users/{user}/memberships/end": [{"account": "acme"}],
}
PAGE_VALUES: Mapping[str, tuple[str, ...]] = {
    **VALUES,
    "key": ("{key}", "{key_max}", "{key_other}"),
    "open_invitation": ("{invitation}",),
    "invitation_id": ("{invitation}",),
    "own_invitation": ("{invitation}",),
    "running": ("{call}",),
    "part": ("input",),
    "request_id": ("{charge}",),
    "session": ("ses_none",),
    "provider": ("corp",),
    "page": ("quickstart",),
    "folder": ("operations",),
    "topic": ("backup",),
}
#: What signs the person in or out, or needs a provider: the walk stays in one session.
OTHER_WALKS = ("/sign-in", "/sign-up", "/sign-out", "/password", "/invitation", "/profile/password", "/profile/data")


def page_steps() -> list[Step]:
    """A request for every page and form of the console."""
    found = []
    for route in PAGES:
        if route.path.startswith(OTHER_WALKS) or "playground" in route.path:
            continue
        names = route.parameters
        for chosen in itertools.product(*(PAGE_VALUES[name] for name in names)):
            values = dict(zip(names, chosen, strict=True))
            path, shown = route.path.format(**values), _shown_email(values)
            for form in FORMS.get(route.path, [{}]) if route.writes else [None]:
                label = f"{route.method} {path}{f' {form}' if form else ''}"
                found.append(Step(label, route, route.method, path, None if form is None else {**form, **shown}))
    return found


def _shown_email(values: Mapping[str, str]) -> dict[str, str]:
    """What the page shows as the address of the user of a form."""
    return {"shown_email": f"{values['user'].strip('{}')}@example.com"} if "user" in values else {}


class Answer(Struct, frozen=True):
    """The status of an answer and its text."""

    status: int
    text: str


class TokenSender:
    """Sends with a token."""

    stops = frozenset({401, 429})

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    async def send(self, step: Step, path: str, body: Any) -> Answer:
        """The answer to a step."""
        headers = {**self._headers, "Idempotency-Key": f"step-{next(_numbers)}"}
        url = f"{self._url}/admin/v1{path}"
        async with self._session.request(step.method, url, json=body, headers=headers) as answer:
            return Answer(answer.status, await answer.text())

    @staticmethod
    def is_hopeless(step: Step, answer: Answer) -> bool:
        """Whether the route refuses the token whatever is stored."""
        route: AdminRoute = step.route
        return answer.status == 403 and route.access.refusal().message in answer.text


class PersonSender:
    """Sends in a browser; a form that asks for the password answers 401."""

    stops = frozenset({429})

    def __init__(self, browser: Any, xsrf: str) -> None:
        self._browser = browser
        self._xsrf = xsrf

    async def send(self, step: Step, path: str, body: Any) -> Answer:
        """The answer to a step."""
        form = {"xsrf": self._xsrf, **body} if step.method == "POST" else None
        shown = await self._browser.ask(step.method, path, form)
        return Answer(shown.status, shown.html)

    @staticmethod
    def is_hopeless(step: Step, answer: Answer) -> bool:
        """Whether the page is for another role, or of another account: a higher role is a gain, which ends a walk."""
        route: PageRoute = step.route
        is_elsewhere = route.audience in OF_ACCOUNTS and "/other" in step.path
        return answer.status == 403 or (answer.status == 404 and is_elsewhere)


def routes_of(steps: Iterable[Step]) -> set[str]:
    """The paths that steps try."""
    return {f"{step.route.method} {step.route.path}" for step in steps}

"""Who may call which route: every route of the table with every kind of actor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.admin.actor import EVERYTHING, SCOPES, Actor
from gateway.admin_api import authentication
from gateway.admin_api.access import Access
from gateway.admin_api.route import Route, Router
from gateway.admin_api.table import ROUTES
from gateway.database.people_tables import admin_tokens
from tests.admin_api.client import NamedActors
from tests.admin_api.samples import Samples


def token(*scopes: str, account: str = "") -> Actor:
    return Actor(kind="token", id="tok_test", scopes=frozenset(scopes), account=account)  # type: ignore[arg-type]


def user(*scopes: str, **memberships: str) -> Actor:
    return Actor(kind="user", id="usr_test", scopes=frozenset(scopes), memberships=memberships)  # type: ignore[arg-type]


ACTORS = {
    "operator": user(*EVERYTHING),
    "viewer": user("read"),
    "person": user(),
    "owner": user(acme="owner"),
    "member": user(acme="member"),
    "other_owner": user(other="owner"),
    "everything": token(*EVERYTHING),
    "everything_acme": token(*(EVERYTHING - {"config"}), account="acme"),
    "everything_other": token(*(EVERYTHING - {"config"}), account="other"),
    **{scope: token(scope) for scope in SCOPES},
    **{f"{scope}_acme": token(scope, account="acme") for scope in SCOPES if scope != "config"},
}


def verdict(route: Route, actor: Actor) -> set[int]:
    """The statuses that the table's rule allows for a request about the account acme."""
    rule = route.access
    if not rule.may_ever(actor):
        return {403}
    if rule.target in ("account", "key"):
        if not rule.may_see(actor, "acme"):
            return {404}
        return {200, 201} if rule.permits(actor, "acme") else {403}
    if rule.target == "visible" and not rule.may_see(actor, "acme"):
        return {200, 404}  # the function shows only what the actor may see
    return {200, 201}


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTORS)
async def test_each_actor_gets_the_verdict_of_the_rule_on_every_route(api, name: str) -> None:
    async with api(NamedActors(**ACTORS)) as a:
        samples = Samples(a)
        for route in ROUTES:
            if route.path == "/token" and route.method == "DELETE":
                continue  # the actors of this test have no token in the database
            sample = await samples.of(route)
            answer = await a.ask(route.method, sample.path, sample.body, headers=sample.headers, token=name)
            assert answer.status in verdict(route, ACTORS[name]), f"{route.method} {route.path}: {answer.document}"


async def test_requests_without_a_valid_token_reach_no_route(api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "MOST_UNKNOWN", 10_000)
    async with api() as a:
        revoked, expired = await a.make_token(*EVERYTHING), await a.make_token(*EVERYTHING, expires=soon())
        tokens = (await a.services.people()).tokens
        actor = await tokens.authenticate(revoked)
        await tokens.revoke(actor, actor.id)
        with (await a.services.database()).writing() as connection:
            connection.execute(admin_tokens.update().where(admin_tokens.c.expires_at.is_not(None)).values(expires_at=1))
        for route in ROUTES:
            path = route.path.format(**dict.fromkeys(route.parameters, "acme"))
            for text in ("", "gwa_" + "x" * 43, "nonsense", revoked, expired):
                answer = await a.ask(route.method, path, token=text)
                if route.access.public:
                    assert answer.status == 200
                else:
                    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        for path in ("/nothing", "/accounts/acme/nothing"):
            assert (await a.ask("GET", path)).status == 401  # paths are not told to strangers


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


async def test_objects_of_other_accounts_look_like_none(api) -> None:
    async with api() as a:
        other = (await a.services.store.keys.create("other")).id
        a.token = await a.make_token(*(EVERYTHING - {"config"}), account="acme")
        for there, missing in (
            ("/accounts/other", "/accounts/nobody"),
            ("/accounts/other/keys", "/accounts/nobody/keys"),
            (f"/keys/{other}", "/keys/key_none"),
        ):
            found = [await a.ask("GET", path) for path in (there, missing)]
            texts = [answer.error["message"].replace(there.split("/")[2], "X") for answer in found[:1]]
            texts += [answer.error["message"].replace(missing.split("/")[2], "X") for answer in found[1:]]
            assert [answer.status for answer in found] == [404, 404]
            assert texts[0] == texts[1] and "nearest" not in texts[0]
        assert [account["name"] for account in (await a.get("/accounts"))["data"]] == ["acme"]
        assert (await a.get("/keys"))["data"] == []
        assert (await a.ask("GET", "/audit-trail?account=other")).status == 404
        assert (await a.ask("POST", "/audits", {"account": "other"})).status == 404


async def test_operator_gets_the_nearest_name_of_an_unknown_object(api) -> None:
    async with api() as a:
        await a.as_operator()
        key = (await a.services.store.keys.create("acme")).id
        await a.post("/users", {"email": "ann@example.com"})
        for path, nearest in (
            ("/accounts/acmee", "acme"),
            (f"/keys/{key[:-1]}", key),
            ("/users/anne@example.com", "ann@example.com"),
        ):
            answer = await a.ask("GET", path)
            assert answer.status == 404 and answer.error["message"].endswith(f'; nearest: "{nearest}"')


async def test_address_with_many_unknown_tokens_waits_while_valid_tokens_work(
    api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "MOST_UNKNOWN", 3)
    async with api() as a:
        await a.as_operator()
        await a.get("/token")
        bad, here, there = "gwa_" + "x" * 43, {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}
        statuses = [(await a.ask("GET", "/token", token=bad, headers=here)).status for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        refused = await a.ask("GET", "/token", token=bad, headers=here)
        assert refused.error["code"] == "too_many_attempts" and int(refused.headers["Retry-After"]) <= 900
        assert (await a.ask("GET", "/token", headers=here)).status == 200
        assert (await a.ask("GET", "/token", token=bad, headers=there)).status == 401
        network = [{"X-Forwarded-For": f"2001:db8:1::{n}"} for n in range(4)]
        statuses = [(await a.ask("GET", "/token", token=bad, headers=one)).status for one in network]
        assert statuses == [401, 401, 401, 429]


def test_table_with_a_faulty_entry_is_refused() -> None:
    async def function(call, account: str) -> None:
        raise NotImplementedError

    def route(path: str, access: Access) -> Route:
        return Route(method="GET", path=path, access=access, summary="", function=function, answer=str)

    good = route("/a/{account}", Access(scope="read", target="account"))
    Router([good])
    for bad in ([good, good], [route("/a", Access(scope="read"))], [route("/{account}", Access(target="key"))]):
        with pytest.raises(ValueError):
            Router(bad)

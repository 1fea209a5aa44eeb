"""Who may call which route: every route of the table with every kind of actor."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from gateway.admin.actor import EVERYTHING, SCOPES, SITE_SCOPES, Actor
from gateway.admin_api import authentication
from gateway.admin_api.access import Access
from gateway.admin_api.route import AdminRoute, AdminRouter
from gateway.admin_api.table import ROUTES
from gateway.database.people_tables import admin_tokens, memberships, users
from gateway.people.role_rights import ROLE_SCOPES
from gateway.people.tokens import Tokens
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


def add_user(connection: Connection, actor: Actor) -> None:
    """The user who acts: those who invite are looked up."""
    role = next((role for role, scopes in SITE_SCOPES.items() if scopes == actor.scopes), "none")
    row = {"id": actor.id, "email": "test@example.com", "name": "", "role": role, "created_at": 0}
    connection.execute(users.insert().values(row))
    for account, role_there in actor.memberships.items():
        member = {"user_id": actor.id, "email": row["email"], "account": account, "role": role_there, "created_at": 0}
        connection.execute(memberships.insert().values(member))


def verdict(route: AdminRoute, actor: Actor) -> set[int]:
    """The statuses that the table's rule allows for a request about the account acme."""
    rule = route.access
    if not rule.may_ever(actor):
        return {403}
    if rule.target in ("account", "key"):
        if not rule.may_see(actor, "acme"):
            return {404}
        gives_role = route.operation_id == "members_invite" and not actor.owns("acme")
        has_role = not gives_role or all(actor.may(scope, "acme") for scope in ROLE_SCOPES["member"])
        return {200, 201} if rule.permits(actor, "acme") and has_role else {403}
    if rule.target == "visible" and not rule.may_see(actor, "acme"):
        return {200, 404}  # the function shows only what the actor may see
    return {200, 201}


@pytest.mark.holds("admin-api.md#tokens-1", "security.md#accounts-and-sessions-2")
@pytest.mark.slow
@pytest.mark.parametrize("name", ACTORS)
async def test_each_actor_gets_the_verdict_of_the_rule_on_every_route(api, name: str) -> None:
    async with api(NamedActors(**ACTORS)) as a:
        samples = Samples(a)
        if ACTORS[name].kind == "user":
            with (await a.services.database()).writing() as connection:
                add_user(connection, ACTORS[name])
        for route in ROUTES:
            if route.path == "/token" and route.method == "DELETE":
                continue  # the actors of this test have no token in the database
            sample = await samples.of(route)
            answer = await a.ask(route.method, sample.path, sample.body, headers=sample.headers, token=name)
            assert answer.status in verdict(route, ACTORS[name]), f"{route.method} {route.path}: {answer.document}"


@pytest.mark.holds("admin-api.md#tokens-1", "security.md#accounts-and-sessions-2")
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


@pytest.mark.holds("admin-api.md#tokens-2", "security.md#accounts-and-sessions-1")
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


@pytest.mark.holds("admin-api.md#requests-and-answers-2")
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


@pytest.mark.holds("admin-api.md#tokens-1")
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


@pytest.mark.holds("admin-api.md#tokens-1", "security.md#shares-8")
async def test_valid_token_that_the_process_has_not_seen_works_after_unknown_ones_of_its_address(
    api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "MOST_UNKNOWN", 3)
    async with api() as a:
        await a.as_operator()
        here = {"X-Forwarded-For": "192.0.2.1"}
        statuses = [(await a.ask("GET", "/token", token="gwa_" + "x" * 43, headers=here)).status for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert (await a.ask("GET", "/token", headers=here)).status == 200


@pytest.mark.holds("admin-api.md#tokens-1", "security.md#shares-8")
async def test_address_with_many_unknown_tokens_looks_one_up_at_a_time(api, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, may_end, authenticate = 0, 0, asyncio.Event(), Tokens.authenticate

    async def slow(this: Tokens, text: str, **rest: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await may_end.wait()
        running -= 1
        return await authenticate(this, text, **rest)

    monkeypatch.setattr(authentication, "MOST_OF_ONE", 5)
    async with api() as a:
        await a.as_operator()
        monkeypatch.setattr(Tokens, "authenticate", slow)
        here = {"X-Forwarded-For": "192.0.2.1"}
        asked = [
            asyncio.create_task(a.ask("GET", "/token", token="gwa_" + f"{number:043}", headers=here))
            for number in range(9)
        ]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=20.0)
        assert {task.result().status for task in done} == {429}
        may_end.set()
        statuses = [answer.status for answer in await asyncio.gather(*asked)]
        assert sorted(statuses) == [401] * 6 + [429] * 3 and most == 1


@pytest.mark.holds("admin-api.md#tokens-1", "security.md#shares-8")
async def test_valid_token_that_the_process_has_not_seen_works_while_those_of_many_networks_of_a_customer_wait(
    api, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, authenticate, begun = asyncio.Event(), Tokens.authenticate, 0

    async def slow(this: Tokens, text: str, **rest: Any) -> Any:
        nonlocal begun
        begun += 1
        await may_end.wait()
        return await authenticate(this, text, **rest)

    monkeypatch.setattr(authentication, "MOST_WAITING", 20)
    async with api() as a:
        await a.as_operator()
        monkeypatch.setattr(Tokens, "authenticate", slow)
        asked = [
            asyncio.create_task(
                a.ask(
                    "GET",
                    "/token",
                    token="gwa_" + f"{number:043}",
                    headers={"X-Forwarded-For": f"2001:db8:0:{number:x}::1"},
                )
            )
            for number in range(30)
        ]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=20.0)
        assert {task.result().status for task in done} == {429} and begun == authentication.AT_ONCE
        elsewhere = asyncio.create_task(a.ask("GET", "/token", headers={"X-Forwarded-For": "192.0.2.1"}))
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        may_end.set()
        assert (await elsewhere).status == 200
        await asyncio.gather(*asked)


def test_table_with_a_faulty_entry_is_refused() -> None:
    async def function(call, account: str) -> None:
        raise NotImplementedError

    def route(path: str, access: Access) -> AdminRoute:
        return AdminRoute(method="GET", path=path, access=access, summary="", function=function, answer=str)

    good = route("/a/{account}", Access(scope="read", target="account"))
    AdminRouter([good])
    for bad in ([good, good], [route("/a", Access(scope="read"))], [route("/{account}", Access(target="key"))]):
        with pytest.raises(ValueError):
            AdminRouter(bad)

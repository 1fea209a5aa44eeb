"""Who may open which page: every route of the table with every kind of reader."""

from __future__ import annotations

import pytest

from gateway.console.audience import OF_ACCOUNTS, Audience
from gateway.console.route import PageRoute, PageRouter
from gateway.console.table import ROUTES
from tests.console.client import ROOT, Browser
from tests.console.samples import OF_CALLERS, Sample, Samples, browser_of

#: A route that is not here, or has another audience, is an error: somebody has to decide who may open it.
AUDIENCES: dict[str, Audience] = {
    "GET /": "signed_in",
    "GET /accounts": "signed_in",
    "GET /sign-in": "public",
    "POST /sign-in": "public",
    "GET /sign-in/code": "public",
    "POST /sign-in/code": "public",
    "GET /sign-in/link": "public",
    "POST /sign-in/link": "public",
    "POST /sign-in/oidc": "public",
    "GET /sign-in/oidc/{provider}/callback": "public",
    "GET /sign-in/oidc/password": "public",
    "POST /sign-in/oidc/password": "public",
    "GET /sign-up": "public",
    "POST /sign-up": "public",
    "GET /sign-up/confirm": "public",
    "POST /sign-up/confirm": "public",
    "GET /password/forgotten": "public",
    "POST /password/forgotten": "public",
    "POST /sign-out": "signed_in",
    "GET /invitation": "public",
    "POST /invitation": "public",
    "GET /profile": "signed_in",
    "POST /profile/name": "signed_in",
    "POST /profile/password": "signed_in",
    "GET /profile/second-factor": "signed_in",
    "POST /profile/second-factor": "signed_in",
    "POST /profile/second-factor/off": "signed_in",
    "POST /profile/invitations/{own_invitation}": "signed_in",
    "POST /profile/identities": "signed_in",
    "POST /profile/identities/end": "signed_in",
    "POST /profile/sessions/{session}/end": "signed_in",
    "POST /profile/sessions/end-others": "signed_in",
    "POST /profile/data": "signed_in",
    "GET /accounts/{account}": "member",
    "GET /accounts/{account}/keys": "member",
    "GET /accounts/{account}/keys/new": "member",
    "POST /accounts/{account}/keys/new": "member",
    "GET /accounts/{account}/keys/{key}": "member",
    "POST /accounts/{account}/keys/{key}": "member",
    "GET /accounts/{account}/keys/{key}/rotate": "member",
    "POST /accounts/{account}/keys/{key}/rotate": "member",
    "GET /accounts/{account}/keys/{key}/revoke": "member",
    "POST /accounts/{account}/keys/{key}/revoke": "member",
    "GET /accounts/{account}/usage": "member",
    "GET /accounts/{account}/usage.csv": "member",
    "GET /accounts/{account}/usage/{request_id}": "member",
    "GET /accounts/{account}/sessions": "member",
    "GET /accounts/{account}/batches": "member",
    "GET /accounts/{account}/batches/{batch}": "member",
    "POST /accounts/{account}/batches/{batch}/cancel": "member",
    "GET /accounts/{account}/batches/{batch}/files/{part}": "member",
    "GET /accounts/{account}/reports": "member",
    "GET /accounts/{account}/reports.csv": "member",
    "GET /accounts/{account}/reports.json": "member",
    "GET /accounts/{account}/prices": "member",
    "GET /prices": "public",
    "GET /docs": "public",
    "GET /docs/search": "public",
    "GET /docs/{page}": "public",
    "GET /docs/{folder}/{topic}": "public",
    "GET /accounts/{account}/playground": "member",
    "GET /accounts/{account}/connect": "member",
    "POST /accounts/{account}/playground": "member",
    "GET /accounts/{account}/playground/calls/{request_id}": "member",
    "GET /accounts/{account}/members": "owner",
    "POST /accounts/{account}/members": "owner",
    "POST /accounts/{account}/invitations/{open_invitation}/withdraw": "owner",
    "POST /accounts/{account}/members/{user}/role": "owner",
    "POST /accounts/{account}/members/{user}/budget": "owner",
    "POST /accounts/{account}/members/{user}/remove": "owner",
    "POST /accounts/{account}/notifications": "owner",
    "GET /accounts/{account}/statements/{month}": "owner",
    "GET /accounts/{account}/statements/{month}/lines.csv": "owner",
    "GET /accounts/{account}/running": "owner",
    "POST /accounts/{account}/running/{running}/cancel": "owner",
    "GET /site": "viewer",
    "GET /site/alerts": "viewer",
    "POST /site/alerts/hide": "operator",
    "GET /site/providers": "viewer",
    "GET /site/providers/{provider}": "viewer",
    "GET /site/calls": "viewer",
    "GET /site/running": "viewer",
    "POST /site/running/{running}/cancel": "operator",
    "GET /site/batches": "viewer",
    "GET /site/ledger/{account}": "viewer",
    "GET /site/audit": "viewer",
    "POST /site/audit": "operator",
    "GET /site/audit-trail": "viewer",
    "GET /site/superseded": "viewer",
    "POST /site/superseded": "operator",
    "GET /site/accounts": "viewer",
    "GET /site/new-account": "operator",
    "POST /site/new-account": "operator",
    "GET /site/accounts/{account}": "viewer",
    "POST /site/accounts/{account}/credit": "operator",
    "POST /site/accounts/{account}/debit": "operator",
    "POST /site/accounts/{account}/refund": "operator",
    "POST /site/accounts/{account}/group": "operator",
    "POST /site/accounts/{account}/limits": "operator",
    "POST /site/accounts/{account}/models": "operator",
    "POST /site/accounts/{account}/disable": "operator",
    "POST /site/accounts/{account}/enable": "operator",
    "GET /site/accounts/{account}/price": "operator",
    "POST /site/accounts/{account}/price/amounts": "operator",
    "POST /site/accounts/{account}/price/factor": "operator",
    "POST /site/accounts/{account}/price/clear": "operator",
    "GET /site/import": "operator",
    "POST /site/import": "operator",
    "POST /site/import/confirm": "operator",
    "POST /site/import/links": "operator",
    "GET /site/models": "viewer",
    "GET /site/models/discovered": "viewer",
    "POST /site/models/probe": "operator",
    "GET /site/configuration": "viewer",
    "POST /site/configuration/check": "operator",
    "POST /site/configuration/reload": "operator",
    "GET /site/connect": "operator",
    "GET /site/plugins": "viewer",
    "GET /site/reports": "viewer",
    "GET /site/reports.csv": "viewer",
    "GET /site/reports.json": "viewer",
    "GET /site/users": "viewer",
    "GET /site/new-user": "operator",
    "POST /site/new-user": "operator",
    "POST /site/invitations/{invitation_id}/withdraw": "operator",
    "GET /site/users/{user}": "viewer",
    "POST /site/users/{user}/name": "operator",
    "POST /site/users/{user}/role": "operator",
    "POST /site/users/{user}/prove": "operator",
    "POST /site/users/{user}/second-factor/off": "operator",
    "POST /site/users/{user}/identities/end": "operator",
    "POST /site/users/{user}/memberships": "operator",
    "POST /site/users/{user}/memberships/end": "operator",
    "POST /site/users/{user}/disable": "operator",
    "POST /site/users/{user}/enable": "operator",
    "POST /site/users/{user}/link": "operator",
    "POST /site/users/{user}/export": "operator",
    "POST /site/users/{user}/erase": "operator",
}
#: It refuses everybody who did not begin a sign-in: `test_oidc` has its tests.
CALLBACK = "/sign-in/oidc/{provider}/callback"
#: What each audience means for each reader of a page about the account acme: whether they may read, and write.
RIGHTS: dict[str, dict[str, str]] = {
    "public": dict.fromkeys(("stranger", "person", "member", "owner", "other_owner", "viewer", "operator"), "rw"),
    "signed_in": dict.fromkeys(("person", "member", "owner", "other_owner", "viewer", "operator"), "rw"),
    "member": {"member": "rw", "owner": "rw", "viewer": "r", "operator": "rw"},
    "owner": {"owner": "rw", "viewer": "r", "operator": "rw"},
    "viewer": {"viewer": "r", "operator": "rw"},
    "operator": {"operator": "rw"},
}
SEES_ACCOUNT = {"member", "owner", "viewer", "operator"}
READERS = {
    "person": {},
    "member": {"acme": "member"},
    "owner": {"acme": "owner"},
    "other_owner": {"other": "owner"},
    "viewer": {"role": "viewer"},
    "operator": {"role": "operator"},
}


def verdict(route: PageRoute, reader: str) -> str:
    """`in`, or why not: sign_in, 403, 404."""
    if route.path == OF_CALLERS and reader in ("viewer", "operator"):
        return "403"
    if ("w" if route.writes else "r") in RIGHTS[route.audience].get(reader, ""):
        return "in"
    if reader == "stranger":
        return "sign_in"
    return "404" if route.audience in OF_ACCOUNTS and reader not in SEES_ACCOUNT else "403"


@pytest.mark.holds("security.md#accounts-and-sessions-2")
def test_each_route_has_the_audience_that_was_decided() -> None:
    assert {f"{route.method} {route.path}": route.audience for route in ROUTES} == AUDIENCES


@pytest.mark.holds("security.md#accounts-and-sessions-2")
@pytest.mark.slow
@pytest.mark.parametrize("reader", ["stranger", *READERS])
async def test_each_reader_gets_the_verdict_of_the_audience_on_every_route(console, reader: str) -> None:
    async with console() as c:
        samples = Samples(c)
        for route in ROUTES:
            if route.path == CALLBACK:
                continue
            user = None if reader == "stranger" else await samples.user(reader, READERS[reader])
            browser = await browser_of(c, user)
            sample = await samples.of(route, user)
            assert await result(browser, route, sample) == verdict(route, reader), f"{route.method} {route.path}"


async def result(browser: Browser, route: PageRoute, sample: Sample) -> str:
    """As `verdict`, from the answer."""
    form, is_known = None, "gateway-session" in browser.cookies
    if route.writes:
        form = {"xsrf": await browser.token("/profile" if is_known else "/sign-in"), **sample.form}
    shown = await browser.ask(route.method, sample.path, form)
    leaves = route.path == "/sign-out" and is_known
    if route.audience != "public" and shown.location.startswith("/sign-in") and not leaves:
        return "sign_in"
    if shown.status in (403, 404):
        return str(shown.status)
    assert shown.status in (200, 303, 400, 401, 409), (route.path, shown.status, shown.text)
    return "in"


async def test_objects_of_other_accounts_look_like_none(console) -> None:
    async with console() as c:
        stranger = await c.as_("eve", other="owner")
        answers = [await stranger.ask("GET", f"/accounts/{name}") for name in ("acme", "nobody")]
        assert [answer.status for answer in answers] == [404, 404]
        texts = [answer.text.replace(name, "X") for answer, name in zip(answers, ("acme", "nobody"), strict=True)]
        assert texts[0].partition("Request")[0] == texts[1].partition("Request")[0]


@pytest.mark.holds("console.md#security-8", "security.md#accounts-and-sessions-1")
@pytest.mark.slow
async def test_ids_of_another_account_are_not_found_on_any_route_of_the_own_one(console) -> None:
    """The ids are real ones of the account acme; the reader owns the account other, whose name is in the path."""
    async with console() as c:
        theirs = await c.user("theirs@example.com", acme="member")
        objects, samples = dict[str, str](), Samples(c)
        owner = await c.as_("eve", other="owner")
        form = {"xsrf": await owner.token(), "role": "owner", "overlap": "24", "budget": "1"}
        tried = 0
        for route in ROUTES:
            names = set(route.parameters) - {"account", "month"}
            if route.audience not in OF_ACCOUNTS or not names:
                continue
            for name in names:
                objects[name] = await getattr(samples, f"_{name}")(theirs)
            shown = await owner.ask(
                route.method, route.path.format(account="other", **objects), form if route.writes else None
            )
            assert shown.status == 404, (route.method, route.path, shown.status)
            tried += 1
        assert tried > 12
        assert (await c.services.store.keys.show(objects["key"])).state == "active"
        assert objects["running"] in c.workers.calls
        people = await c.services.people()
        assert objects["open_invitation"] in {one.id for one in await people.invitations.list(ROOT, "acme")}


async def test_operator_gets_no_page_of_an_account_that_is_not_there(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        assert (await operator.ask("GET", "/accounts/nobody")).status == 404
        assert (await operator.ask("GET", "/accounts/acme")).status == 200


@pytest.mark.holds("security.md#accounts-and-sessions-3")
async def test_membership_that_ends_shuts_the_pages_of_the_account_at_once(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", acme="member")
        browser = await c.signed_in(user)
        assert (await browser.ask("GET", "/accounts/acme")).status == 200
        people = await c.services.people()
        await people.memberships.remove(ROOT, user.id, "acme")
        assert (await browser.ask("GET", "/accounts/acme")).status == 404
        await people.users.disable(ROOT, user.id)
        assert (await browser.ask("GET", "/profile")).location.startswith("/sign-in")


def test_table_with_a_faulty_entry_is_refused() -> None:
    async def page(visit) -> None:
        raise NotImplementedError

    async def of_account(visit, account: str) -> None:
        raise NotImplementedError

    good = PageRoute(method="GET", path="/a/{account}", audience="member", function=of_account)
    PageRouter([good])
    for bad in (
        [good, good],
        [PageRoute(method="GET", path="/a", audience="member", function=page)],
        [PageRoute(method="GET", path="/a", audience="public", function=of_account)],
        [PageRoute(method="GET", path="/a", audience="public", function=page, form=page)],
    ):
        with pytest.raises(ValueError):
            PageRouter(bad)

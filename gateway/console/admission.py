"""Who may send a request for a page: its route is found, and the person is compared with the audience of the route."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.console import cookies as names
from gateway.console.audience import check_audience
from gateway.console.paths import path_with
from gateway.console.replies import Redirect
from gateway.console.route import PageRoute, PageRouter
from gateway.console.visit import Visit
from gateway.errors import GatewayError, NotFound, NotSignedIn
from gateway.web.late_answers import require_same
from gateway.web.zero_character import refuse_zero

SIGN_IN = "/sign-in"


class Admitted(Struct, frozen=True):
    """The route of a request that may be answered, and the parameters of its path."""

    route: PageRoute
    parameters: Mapping[str, str]


async def admit(router: PageRouter, visit: Visit, query: str) -> Admitted | Redirect:
    """Find out who asks, and for which route; a Redirect says where to sign in. All errors of a refusal.

    `query` is that of the address, for the way back after the sign-in.
    """
    try:
        route, parameters = router.search(visit.asked.method, visit.asked.path)
    except GatewayError:
        await visit.identify()  # for the page of the error
        raise
    await visit.identify(parameters.get("account", ""))
    refuse_zero(visit.asked.query)
    try:
        await _check(visit, route, parameters.get("account", ""))
    except NotSignedIn:
        return _to_sign_in(visit, route, query)
    visit.help = route.help
    return Admitted(route, parameters)


async def admit_same(router: PageRouter, visit: Visit, query: str, before: Actor) -> None:
    """`admit` once more, while an answer is sent; errors of a refusal for who has signed out or has other rights."""
    if isinstance(await admit(router, visit, query), Redirect):
        raise NotSignedIn
    require_same(before, visit.actor)


async def _check(visit: Visit, route: PageRoute, account: str) -> None:
    actor = visit.actor if visit.is_signed_in else None
    check_audience(route.audience, actor, account, writes=route.writes)
    if route.is_open is not None and not route.is_open(visit):
        raise NotSignedIn if actor is None else NotFound("There is no such page")
    if not account or actor is None:
        return
    if account not in actor.memberships:
        await (await visit.people()).directory.require(account)  # an operator may type any name
    visit.account = account
    if account in actor.memberships and visit.cookies.get(names.ACCOUNT) != account:
        visit.cookies.set(names.ACCOUNT, account, max_age=names.SESSION_AGE)


def _to_sign_in(visit: Visit, route: PageRoute, query: str) -> Redirect:
    path = visit.asked.path if not route.writes else "/"
    if not route.writes and query:
        path += f"?{query}"
    return Redirect(path_with(SIGN_IN, next=path if path != "/" else ""))

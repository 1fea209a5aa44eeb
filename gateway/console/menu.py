"""The navigation: the pages of the current account, and those of the site, as far as they are for the reader."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.console import cookies as names
from gateway.console.audience import OF_ACCOUNTS, check_audience
from gateway.console.route import PageRoute
from gateway.console.visit import MOST_IN_MENU, Visit
from gateway.errors import GatewayError


class Item(Struct, frozen=True):
    """One link."""

    label: str
    path: str
    is_current: bool


class Menu(Struct, frozen=True):
    """The links, and the account that they are about; "" for none."""

    account: str
    accounts: list[Item]  # of the reader, to switch to: the first ones
    has_more: bool  # accounts
    of_account: list[Item]
    of_site: list[Item]


def menu_of(visit: Visit, routes: Sequence[PageRoute]) -> Menu:
    """The navigation of a visit; for a stranger the public pages."""
    account = current_account(visit)
    actor = visit.actor if visit.is_signed_in else None
    shown = [route for route in routes if route.menu]
    of_account = [route for route in shown if route.audience in OF_ACCOUNTS]
    here = _here(visit, of_account, account)
    target = here.path if here is not None else of_account[0].path if of_account else "/"
    known = sorted(visit.user.accounts) if visit.user is not None else []
    offered = known[:MOST_IN_MENU]
    return Menu(
        account=account,
        accounts=[Item(name, target.format(account=name), name == account) for name in offered],
        has_more=len(known) > len(offered),
        of_account=_items(visit, of_account, actor, account) if account else [],
        of_site=_items(visit, [route for route in shown if route.audience not in OF_ACCOUNTS], actor, ""),
    )


def current_account(visit: Visit) -> str:
    """The account of the page, or the one whose pages were opened last, or the first; "" for none."""
    if visit.account or visit.user is None:
        return visit.account
    last = visit.cookies.get(names.ACCOUNT)
    return last if last in visit.user.accounts else next(iter(sorted(visit.user.accounts)), "")


def _here(visit: Visit, routes: Sequence[PageRoute], account: str) -> PageRoute | None:
    """The route of the page, or of the one that it is below."""
    asked = visit.asked.path
    found = [(route.path.format(account=account), route) for route in routes]
    above = [(path, route) for path, route in found if asked == path or asked.startswith(f"{path}/")]
    return max(above, key=lambda pair: len(pair[0]))[1] if above else None


def _items(visit: Visit, routes: Sequence[PageRoute], actor: Actor | None, account: str) -> list[Item]:
    found, here = [], _here(visit, routes, account)
    for route in routes:
        if route.is_open is not None and not route.is_open(visit):
            continue
        try:
            check_audience(route.audience, actor, account, writes=route.writes)
        except GatewayError:
            continue
        found.append(Item(route.menu, route.path.format(account=account), route is here))
    return found

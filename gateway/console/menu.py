"""The navigation: groups of pages, of the current account and of the site, as far as they are for the reader.

A group without a page for the reader is left out. The groups on the side of the current page (account or site) are
open.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.console import cookies as names
from gateway.console.audience import OF_ACCOUNTS, check_audience
from gateway.console.route import GROUPS, PageRoute
from gateway.console.visit import MOST_IN_MENU, Visit
from gateway.errors import GatewayError

HOME_OF_SITE = "/site"
#: Pages that the navigation does not have, and the entry that they belong to. Others are below the path of their entry.
BELOW = {
    "/site/connect": "/site/providers",
    "/site/import": "/site/accounts",
    "/site/ledger": "/site/audit",
    "/site/new-account": "/site/accounts",
    "/site/new-user": "/site/users",
    "/site/superseded": "/site/audit",
}


class Item(Struct, frozen=True):
    """One link."""

    label: str
    path: str
    is_current: bool


class ItemGroup(Struct, frozen=True):
    """Links under one heading."""

    label: str
    items: list[Item]
    is_open: bool

    @property
    def is_current(self) -> bool:
        """Whether it has the page."""
        return any(item.is_current for item in self.items)


class Menu(Struct, frozen=True):
    """The groups, and the account that the first one is about; "" for none."""

    account: str
    accounts: list[Item]  # of the reader, to switch to: the first ones
    has_more: bool  # accounts
    groups: list[ItemGroup]

    @property
    def items(self) -> list[Item]:
        """All links."""
        return [item for group in self.groups for item in group.items]

    @property
    def place(self) -> str:
        """The group and the name of the page; empty for a page that the navigation does not have."""
        found = [(group.label, item.label) for group in self.groups for item in group.items if item.is_current]
        return ": ".join(found[0]) if found else ""


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
        groups=_groups(visit, shown, actor, account),
    )


def _groups(visit: Visit, shown: Sequence[PageRoute], actor: Actor | None, account: str) -> list[ItemGroup]:
    sides = [route for route in shown if route.audience in OF_ACCOUNTS], [route for route in shown if route.group]
    of_account = _items(visit, sides[0], actor, account) if account else []
    of_site = {name: _items(visit, [route for route in sides[1] if route.group == name], actor, "") for name in GROUPS}
    has_site = actor is not None and actor.may("read")  # others have so few links that all are shown
    on_site = has_site and not any(item.is_current for item in of_account)
    groups = [ItemGroup(name, items, on_site or not has_site) for name, items in of_site.items()]
    first = ItemGroup(f"Account {account}", of_account, not on_site)
    return [group for group in ([*groups, first] if has_site else [first, *groups]) if group.items]


def current_account(visit: Visit) -> str:
    """The account of the page, or the one whose pages were opened last, or the first; "" for none."""
    if visit.account or visit.user is None:
        return visit.account
    last = visit.cookies.get(names.ACCOUNT)
    return last if last in visit.user.accounts else next(iter(sorted(visit.user.accounts)), "")


def _here(visit: Visit, routes: Sequence[PageRoute], account: str) -> PageRoute | None:
    """The route of the page, or of the one that it is below."""
    asked = visit.asked.path
    asked = next((entry for page, entry in BELOW.items() if _is_below(asked, page)), asked)
    found = [(route.path.format(account=account), route) for route in routes]
    above = [(path, route) for path, route in found if _is_below(asked, path)]
    return max(above, key=lambda pair: len(pair[0]))[1] if above else None


def _is_below(asked: str, path: str) -> bool:
    """Whether a page is this one or below it; no page is below the home page of the site."""
    return asked == path or (path != HOME_OF_SITE and asked.startswith(f"{path}/"))


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

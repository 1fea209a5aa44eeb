"""The order of a list of calls, and the least that they cost or took, as the address of a page says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from gateway.amounts import NANO, parse_amount
from gateway.console.fields import whole_number
from gateway.console.visit import Visit
from gateway.errors import InvalidValue
from gateway.history.call_search import CallSearch, FoundCall, Order

ORDERS: Mapping[str, Order] = {"cost": "cost", "duration": "duration"}
FIELDS = ("sort", "least_cost", "least_seconds")
PLACE = ("behind", "older")  # of a page in the list: its last call before, and the end of what is searched
LONGEST = 10**9  # ms
MILLI = NANO // 1000


class CallOrder(Struct, frozen=True, kw_only=True):
    """What was chosen; `texts` are the parameters of links that keep it."""

    order: Order
    least_cost: int  # nano-units
    least_duration: int  # ms
    behind: tuple[int, int, str, int] | None  # rank, time, account and number of the last call before
    older: int | None  # microseconds since 1970
    texts: Mapping[str, str]

    def search(self, wanted: CallSearch) -> CallSearch:
        """The search in this order. One that is not ranked has its own `before`."""
        wanted = structs.replace(
            wanted, order=self.order, least_cost=self.least_cost, least_duration=self.least_duration
        )
        if self.older is not None:
            wanted = structs.replace(wanted, until=max(wanted.since + 1, min(wanted.until, self.older)))
        if self.behind is not None and wanted.is_ranked:
            passed, at, account, seq = self.behind
            wanted = structs.replace(wanted, before=(at, account, seq), passed=passed)
        return wanted

    def next(self, last: FoundCall | None) -> dict[str, Any]:
        """The parameters of a link to the page behind a call; none without one."""
        if last is None:
            return {}
        at, account, seq = last.position
        place = {"behind": f"{last.rank(self.order)}.{at}.{seq}.{account}"}
        return place | ({"older": self.older} if self.older is not None else {})


def chosen_order(visit: Visit) -> CallOrder:
    """What the parameters say; an impossible amount or time is left out, with a message."""
    cost, seconds = visit.query("least_cost"), visit.query("least_seconds")
    try:
        least = parse_amount(cost) if cost else 0, _milliseconds(seconds) if seconds else 0
        if least[0] < 0:
            raise ValueError
    except ValueError:
        visit.error = InvalidValue("Expected an amount such as 0.05 and seconds such as 2.5")
        least, cost, seconds = (0, 0), "", ""
    order: Order = ORDERS.get(visit.query("sort"), "")
    return CallOrder(
        order=order,
        least_cost=least[0],
        least_duration=least[1],
        behind=_behind(visit.query("behind")),
        older=whole_number(visit.query("older")),
        texts={"sort": order, "least_cost": cost, "least_seconds": seconds},
    )


def is_ranked(visit: Visit) -> bool:
    """Whether the page may have calls in another order than the newest first, or only some: no index finds them."""
    return any(visit.query(name) for name in FIELDS)


def place_in(visit: Visit) -> Sequence[str]:
    """All parameters that decide which calls a page has, beside its filters and its range."""
    return [visit.query(name) for name in (*FIELDS, *PLACE)]


def _milliseconds(text: str) -> int:
    found = parse_amount(text) // MILLI  # decimal text as well
    if not 0 <= found <= LONGEST:
        raise ValueError(text)
    return found


def _behind(text: str) -> tuple[int, int, str, int] | None:
    passed, at, seq, account = (text.split(".", 3) + [""] * 4)[:4]
    numbers = [whole_number(one) for one in (passed, at, seq)]
    if numbers[0] is None or numbers[1] is None or numbers[2] is None:
        return None
    return numbers[0], numbers[1], account, numbers[2]

"""One call: who made it, what it was charged and why, what answered, and how long it took.

The charge is computed again from the usage on its line and the price table of its version, bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import Struct

from gateway.accounts.accounts import NAME
from gateway.admin.actor import Actor
from gateway.admin.rights import reads_account
from gateway.admin.transactions import Transactions
from gateway.amounts import format_amount
from gateway.billing.itemised_cost import CostItem, ItemisedCost, itemised_cost
from gateway.billing.usage import Usage
from gateway.errors import NotFound
from gateway.history.caller_addresses import address_of
from gateway.history.reader import read_request
from gateway.ids import to_request_id
from gateway.ledger.line import LedgerLine, answers_in
from gateway.ledger.price_tables import read_prices
from gateway.ledger.refund import find_charge
from gateway.store.links import Links, slot

CALL = frozenset({"use", "reclaim", "adj"})  # kinds of lines
#: What the line says of the call, as it is stored.
FACTS = (
    "key", "user", "model", "provider", "upstream", "endpoint", "outcome", "service_tier", "price", "tags", "session",
)  # fmt: skip
_FLAGS = ("estimated", "clamped", "reclaimed")


class CallDetails(Struct, frozen=True, kw_only=True):
    """A call; amounts are nano-units. `cost` is None if the price table or the usage is not known.

    `with_costs`: whether the lines show what the call cost the operator.
    """

    request_id: str
    lines: list[LedgerLine]  # oldest first; a call that was amended has several
    refunded: int
    cost: ItemisedCost | None
    with_costs: bool = False
    address: str = ""  # that the call came from; "" if it is not known

    @property
    def account(self) -> str:
        """The account that pays."""
        return self.lines[0].account

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway usage show`."""
        last, meta = self.lines[-1], self.lines[-1].meta
        charged = -sum(line.amount for line in self.lines)
        uncollected = sum(line.uncollected for line in self.lines)
        return {
            "request_id": self.request_id,
            "account": self.account,
            "at": last.json_form()["at"],
            **{name: meta.get(name) for name in FACTS},
            "served_model": last.served_model,
            **{name: meta.get(name, False) for name in _FLAGS},
            "late": any(line.late for line in self.lines),
            "attempts": meta.get("attempts", 0),
            "hooks": meta.get("hooks") or {},
            "joined": meta.get("joined"),
            "answers": answers_in(meta, for_operator=self.with_costs),
            "duration_ms": meta.get("duration_ms", 0),
            "first_token_ms": meta.get("first_token_ms") or None,
            "address": self.address or None,
            "hold": format_amount(meta.get("hold", 0)),
            "amount": format_amount(charged),
            "uncollected": format_amount(uncollected),
            "refunded": format_amount(self.refunded),
            "cost": None if self.cost is None else _cost_form(self.cost),
            "lines": [line.json_form(with_costs=self.with_costs) for line in self.lines],
        }


class CallReader:
    """Finds calls."""

    def __init__(self, transactions: Transactions | None, links: Links) -> None:
        self._transactions = transactions  # None: there is no database
        self._links = links

    async def show(self, actor: Actor, request_id: str, account: str | None = None) -> CallDetails:
        """The call of a request id, or of the `chatcmpl-…` id that its client saw.

        A call that is not in the database yet is found only with its `account`.
        NotFound: no such call, or none that the actor may see.
        """
        request_id = to_request_id(request_id)
        lines = await self._lines(request_id, account)
        if not lines or not _may_see(actor, lines[-1]):
            raise NotFound(f"There is no settled request {request_id!r}")
        meta = lines[-1].meta
        prices = await read_prices(self._links, [meta.get("price", "")])
        key = slot(lines[0].account)
        refunded = await self._links.link(key).call("HGET", f"{key}:rf", request_id)
        price = prices.get(meta.get("price", ""))
        return CallDetails(
            request_id=request_id,
            lines=lines,
            refunded=int(refunded or 0),
            cost=None if price is None or "usage" not in meta else itemised_cost(price, **_basis(meta)),
            with_costs=actor.may("read"),
            address=await self._address(lines[0]),
        )

    async def _address(self, line: LedgerLine) -> str:
        if self._transactions is None:
            return ""
        key_id = line.meta.get("key", "")
        return await self._transactions.read(address_of, key_id, line.request_id, line.milliseconds * 1000)

    async def _lines(self, request_id: str, account: str | None) -> list[LedgerLine]:
        found: Sequence[LedgerLine] = ()
        if self._transactions is not None:
            found = await self._transactions.read(read_request, request_id)
        lines = [line for line in found if line.kind in CALL and line.meta.get("key")]
        lines = [line for line in lines if line.account == (account or lines[0].account)]
        if not lines and account is not None and NAME.fullmatch(account):
            kept = await find_charge(self._links, account, request_id)
            lines = [line for line in kept if line.kind in CALL]
        return lines


def _may_see(actor: Actor, line: LedgerLine) -> bool:
    if reads_account(actor, line.account):
        return True
    is_own = actor.kind == "user" and line.meta.get("user") == actor.id
    return is_own and line.account in actor.memberships


def _basis(meta: dict[str, Any]) -> dict[str, Any]:
    """What the cost is computed from, beside the price."""
    return {
        "usage": msgspec.convert(meta["usage"], Usage),
        "service_tier": meta.get("service_tier") or None,
        "price_factor": Fraction(meta.get("price_factor", "1")),
    }


def _cost_form(cost: ItemisedCost) -> dict[str, Any]:
    return {
        "items": [_item_form(item) for item in cost.items],
        "tier_factor": _decimal(cost.tier_factor),
        "price_factor": _decimal(cost.price_factor),
        "minimum": format_amount(cost.minimum),
        "total": format_amount(cost.cost),
    }


def _item_form(item: CostItem) -> dict[str, Any]:
    return {
        "bucket": item.bucket,
        "count": _decimal(item.count),
        "price": format_amount(item.price),
        "per": item.per,
        "amount": _decimal(item.cost / 1_000_000_000),
    }


def _decimal(value: Fraction) -> str:
    """An exact decimal text; counts and amounts have denominators of tens, a factor may be rounded to 15 places."""
    text = f"{value.numerator * 10**21 // value.denominator:022d}"
    return f"{text[:-21]}.{text[-21:]}".rstrip("0").rstrip(".")

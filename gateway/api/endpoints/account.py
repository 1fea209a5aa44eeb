"""The caller's money: `GET /v1/balance`, and the receipt of a call at `GET /v1/usage/{request_id}`.

A receipt is found by the marker that a settlement leaves in the store for a day, and then in the database, through the
console process. A receipt never names the provider. Like the answer, it names a fallback only if the key
may use that model.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.accounts.accounts import Accounts
from gateway.amounts import format_amount
from gateway.api.handler import KeyedHandler
from gateway.errors import NotFound
from gateway.history.usage_question import ReceiptQuestion
from gateway.ids import to_request_id
from gateway.ledger import LedgerLine
from gateway.ledger.api_key import ApiKey
from gateway.ledger.line import ATTEMPT_USAGE, answers_in, without_cost

REQUEST_ID = re.compile(r"req_[0-9a-f]{32}", re.ASCII)


class BalanceHandler(KeyedHandler):
    """The balance of the caller's account, and the part that running calls hold."""

    endpoint_name = "balance"

    async def get(self) -> None:
        key = (await self.confirm()).key
        account = await Accounts(self.services.store, self.services.ledger).show(key.account)
        self.send_json(
            {
                "object": "balance",
                "account": account.name,
                "balance": format_amount(account.balance),
                "held": format_amount(account.held),
                "available": format_amount(account.available),
                "currency": self.services.catalog.currency,
            }
        )


class ReceiptHandler(KeyedHandler):
    """The receipt of one call of the caller's own key."""

    endpoint_name = "usage"

    async def get(self) -> None:
        key, request_id = (await self.confirm()).key, to_request_id(self.argument)
        found = await self.services.ledger.charge_of(key.account, request_id) or await _older_charge(
            self, key, request_id
        )
        if found is None or found[0].meta.get("key") != key.id:
            raise NotFound("No settled request of this key has that id")
        receipt = _receipt(
            *found,
            refunded=await self.services.ledger.refunded_of(key.account, request_id),
            served_model=await _served_model(self, found[0]),
            currency=self.services.catalog.currency,
        )
        self.send_json(receipt)


async def _older_charge(handler: KeyedHandler, key: ApiKey, request_id: str) -> tuple[LedgerLine, int] | None:
    """A call that the store has forgotten; ConcurrencyLimited, Unavailable."""
    services = handler.services
    if not services.settings.console.enabled or not REQUEST_ID.fullmatch(request_id):
        return None
    found = await services.usage_history.receipt(ReceiptQuestion(key.account, key.id, request_id))
    return None if found is None else (found.line, found.cost)


async def _served_model(handler: KeyedHandler, line: LedgerLine) -> str | None:
    """The model that the receipt names: the fallback if the key may use it now, else the requested model."""
    served = handler.services.catalog.find(line.served_model or "")
    if served is None:
        return line.meta.get("model")
    view = await handler.confirm([served.name])
    return line.served_model if view.permits(served.name, served.groups) else line.meta.get("model")


def _receipt(
    line: LedgerLine, cost: int, *, refunded: int, served_model: str | None, currency: str | None
) -> dict[str, Any]:
    meta = line.meta
    return {
        "object": "receipt",
        "request_id": line.request_id,
        "at": line.json_form()["at"],
        "model": meta.get("model"),
        "served_model": served_model,
        "cost": format_amount(cost),
        "refunded": format_amount(refunded),
        "currency": currency,
        "hold": format_amount(meta.get("hold", 0)),
        "price": meta.get("price", ""),
        "price_factor": meta.get("price_factor", "1"),
        "usage": without_cost(meta.get("usage", {})),
        "estimated": meta.get("estimated", False),
        "attempts": meta.get("attempts", 0),
        "answers": [
            {name: answer[name] for name in ("code", "status", "ms", *ATTEMPT_USAGE) if name in answer}
            for answer in answers_in(meta, for_operator=False)
        ],
        "joined": meta.get("joined"),
        "hooks": meta.get("hooks") or {},
        "outcome": meta.get("outcome", ""),
        "tags": meta.get("tags") or {},
        "session": meta.get("session"),
    }

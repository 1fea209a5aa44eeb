"""A call that runs, as it is noted on the board: who makes it, and what it would owe for so much delivered.

A dead worker's heir turns it into the settlement that the worker did not live to write: `tab.entry(tab.bill, units)`.
Sharp edge: it knows the text that was delivered and nothing else; the upstream's own count died with the worker.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from gateway.amounts import MAX_AMOUNT
from gateway.billing.price import Price
from gateway.billing.usage import Usage, tokens_of
from gateway.ledger.call import LineMeta
from gateway.ledger.entry import Entry


class Bill(Struct, array_like=True, frozen=True):
    """What turns delivered units into a charge, by the arithmetic of any stream that was cut."""

    at: int  # µs, Redis time of the admission
    meta: LineMeta
    prompt: Usage
    price: Price
    service_tier: str | None
    factor: float  # the model's tokens per estimated token

    def usage(self, units: int) -> Usage:
        """The prompt, and what was delivered."""
        return structs.replace(self.prompt, out_text=tokens_of(units, factor=self.factor), estimated=False)


class CheckpointRecord(Struct, array_like=True, frozen=True):
    """A call that runs; without a bill nothing was delivered yet, or nobody counted it here."""

    account: str
    request_id: str
    key_id: str
    bill: Bill | None = None

    def entry(self, bill: Bill, units: int) -> Entry:
        """The settlement that its worker did not live to write."""
        usage = bill.usage(units)
        amount = min(bill.price.cost(usage, service_tier=bill.service_tier), MAX_AMOUNT)
        meta = structs.replace(bill.meta, usage=usage)
        tokens = usage.tokens_in + usage.tokens_out
        return Entry(
            self.account,
            self.request_id,
            self.key_id,
            "use",
            -amount,
            tokens,
            bill.at,
            msgspec.json.encode(meta).decode(),
        )

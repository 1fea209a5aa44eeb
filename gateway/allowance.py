"""How far a running stream may go on the money it holds, and more money in time.

A call without an output limit of its own holds a reserve, not the worst case, so a long answer asks for more when four
fifths are used up. If the account has no more, the stream goes on to the end of what it holds and is then cut: it never
costs more than its hold and one chunk. Sharp edge: it counts delivered units, which is what a cut stream is billed by.
"""

from __future__ import annotations

import math

from gateway.call import Call
from gateway.errors import BalanceExhausted, BudgetExceeded, StoreUnavailable
from gateway.ledger import Ledger
from gateway.usage import Usage, tokens_of

UNITS_PER_TOKEN = 4


class Allowance:
    """The units a stream may deliver before it must ask."""

    def __init__(self, call: Call, ledger: Ledger, *, bounded: bool) -> None:
        self._call = call
        self._ledger = ledger
        # A caller's own output limit was held in full, and a free model costs nothing: neither ever asks.
        self._idle = bounded or not call.model.price.output
        self.until = math.inf if self._idle else self._units(0.8)

    def _units(self, share: float) -> float:
        """Units of output at which the call has used that share of its hold."""
        call = self._call
        price = call.model.price.at(call.prompt.tokens_in)
        left = call.hold.amount * share - price.cost(call.prompt)
        return max(0.0, left * 1_000_000 / price.output * UNITS_PER_TOKEN / call.model.token_factor)

    async def extend(self, units: int) -> None:
        """Hold more for a stream that has delivered `units`; raises what the caller is to be told when it must end."""
        call = self._call
        more = Usage(requests=0, out_text=call.model.default_reserve_output)
        try:
            await self._ledger.extend(call.hold, max(1, call.model.price.cost(more)))
        except (BalanceExhausted, BudgetExceeded):
            if self._used(units) >= call.hold.amount:
                raise
            self.until = self._units(1.0)
        except StoreUnavailable:
            self.until = units + UNITS_PER_TOKEN * call.model.default_reserve_output  # an answer outlives the store
        else:
            self.until = self._units(0.8)

    def _used(self, units: int) -> int:
        call = self._call
        tokens = tokens_of(units, factor=call.model.token_factor)
        return call.model.price.cost(Usage(in_text=call.prompt.in_text, out_text=tokens))

"""How far a running stream may go on the money it holds, and more money in time.

A call without an output limit of its own holds a reserve, not the worst case, so a long answer asks for more when four
fifths are used up. If the account has no more, the stream goes on to the end of what it holds and is then cut: it never
costs more than its hold and one chunk. Sharp edge: it counts delivered units, which is what a cut stream is billed by.
"""

from __future__ import annotations

import math

from msgspec import structs

from gateway.call import Call
from gateway.errors import BalanceExhausted, BudgetExceeded, StoreUnavailable
from gateway.ledger import Ledger
from gateway.usage import Usage

UNITS_PER_TOKEN = 4
PER_MILLION = 1_000_000


class Allowance:
    """The units a stream may deliver before it must ask."""

    def __init__(self, call: Call, ledger: Ledger, *, bounded: bool) -> None:
        self._call = call
        self._ledger = ledger
        self._prompt = call.cost(call.prompt)
        self._per_million = call.cost(structs.replace(call.prompt, out_text=PER_MILLION)) - self._prompt
        # Shares of the hold at which to ask for more, and at which to end. An output limit was held in full, so the
        # upstream ends by itself; only one that keeps no limits is stopped, at twice what its answer may cost.
        self._ask, self._end = (2.0, 2.0) if bounded else (0.8, 1.0)
        self.until = self._units(self._ask)

    def _units(self, share: float) -> float:
        """Units of output at which the call has used that share of its hold."""
        if not self._per_million:
            return math.inf
        call = self._call
        tokens = (call.hold.amount * share - self._prompt) * PER_MILLION / self._per_million
        return max(0.0, tokens * UNITS_PER_TOKEN / call.model.token_factor)

    async def extend(self, units: int) -> None:
        """Hold more for a stream that has delivered `units`; raises what the caller is to be told when it must end."""
        call = self._call
        more = call.cost(Usage(requests=0, out_text=call.model.default_reserve_output))
        try:
            await self._ledger.extend(call.hold, max(1, more))
        except (BalanceExhausted, BudgetExceeded):
            if units >= self._units(self._end):
                raise
            self.until = self._units(self._end)
        except StoreUnavailable:
            self.until = units + UNITS_PER_TOKEN * call.model.default_reserve_output  # an answer outlives the store
        else:
            self.until = self._units(self._ask)

"""How far a running stream may go on the money it holds, and more money in time.

A call without an output limit of its own holds a reserve, not the worst case, so a long answer asks for more when four
fifths are used up. One with a limit holds all of it and asks only when more than that was delivered: the upstream keeps
no limits, or our estimate is high. If the account has no more, a stream goes on to the end of what it holds and is then
cut: it never costs more than its hold and one chunk. Sharp edge: it counts delivered units, which is what a cut stream
is billed by.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import structs

from gateway.billing.usage import Usage
from gateway.errors import BalanceExhausted, BudgetExceeded, StoreUnavailable
from gateway.inference.call import Call
from gateway.ledger import Ledger

UNITS_PER_TOKEN = 4
PER_MILLION = 1_000_000
MORE_SOUND = 30_000  # milliseconds


class HoldExtension:
    """The units a stream may deliver before it must ask: `until`, which changes only when it was reached."""

    __slots__ = ("_ask", "_call", "_ledger", "_per_million", "_prompt", "_step", "until")

    def __init__(self, call: Call, ledger: Ledger, *, bounded: bool) -> None:
        self._call = call
        self._ledger = ledger
        self._prompt = call.cost(call.prompt)
        self._per_million = call.cost(structs.replace(call.prompt, out_text=PER_MILLION)) - self._prompt
        reserve = call.cost(Usage(requests=0, out_text=call.model.default_reserve_output))
        # How much more at a time: where a limit was held in full only an estimate's error is missing, if anything.
        self._step = min(reserve, call.hold.amount // 4) if bounded else reserve
        self._ask = 1.0 if bounded else 0.8  # the share of the hold at which to ask for more
        self.until = self._units(self._ask)

    def _units(self, share: float) -> float:
        """Units of output at which the call has used that share of its hold."""
        if not self._per_million:
            return math.inf
        call = self._call
        tokens = (call.hold.amount * share - self._prompt) * PER_MILLION / self._per_million
        return max(0.0, tokens * UNITS_PER_TOKEN / call.model.token_factor)

    def _cost(self, units: int) -> int:
        """What `units` of output and the prompt come to."""
        tokens = units * self._call.model.token_factor / UNITS_PER_TOKEN
        return self._prompt + math.ceil(tokens * self._per_million / PER_MILLION)

    async def extend(self, units: int) -> None:
        """Hold more for a stream that has delivered `units`; raises what the caller is to be told when it must end."""
        call = self._call
        # A chunk may be dearer than a step; without what it overdrew the hold would stay behind for good.
        more = self._step + max(0, self._cost(units) - call.hold.amount)
        try:
            await self._ledger.extend(call.hold, max(1, more))
        except (BalanceExhausted, BudgetExceeded):
            if units >= self._units(1.0):
                raise
            self.until = self._units(1.0)
        except StoreUnavailable:
            self.until = units + UNITS_PER_TOKEN * call.model.default_reserve_output  # an answer outlives the store
        else:
            self.until = self._units(self._ask)


class SoundHoldExtension:
    """The same for spoken answers: milliseconds of sound, where the price depends on them."""

    def __init__(self, call: Call, ledger: Ledger, *, usage: Callable[[float], Usage]) -> None:
        self._call = call
        self._ledger = ledger
        self._start = call.cost(usage(0.0))
        self._per_million = call.cost(usage(PER_MILLION / 1000)) - self._start  # of milliseconds
        self.until = self._milliseconds()

    def _milliseconds(self) -> float:
        if not self._per_million:
            return math.inf
        return (self._call.hold.amount - self._start) * PER_MILLION / self._per_million

    async def extend(self, milliseconds: int) -> None:
        """Hold half a minute more; raises what the caller is to be told when the account has none."""
        overdrawn = self._start + milliseconds * self._per_million // PER_MILLION - self._call.hold.amount
        more = MORE_SOUND * self._per_million // PER_MILLION + max(0, overdrawn)
        try:
            await self._ledger.extend(self._call.hold, max(1, more))
        except StoreUnavailable:
            self.until = milliseconds + MORE_SOUND  # an answer outlives the store
        else:
            self.until = self._milliseconds()

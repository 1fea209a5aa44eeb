"""How far a running stream may go on the money it holds, and more money in time.

A call without an output limit of its own holds a reserve, not the worst case, so a long answer asks for more when four
fifths are used up. One with a limit holds all of it and asks only when more than that was delivered: the upstream keeps
no limits, or our estimate is high. If the account has no more, a stream goes on to the end of what it holds and is then
cut: it never costs more than its hold and one chunk. Sharp edge: it counts what was delivered, which is what a cut
stream is charged by.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import structs

from gateway.billing.delivered import Delivered
from gateway.billing.usage import Usage
from gateway.errors import BalanceExhausted, BudgetExceeded, StoreUnavailable
from gateway.inference.call import Call
from gateway.ledger import Ledger

QUARTERS_PER_TOKEN = 4
PER_MILLION = 1_000_000
MORE_SOUND = 30_000  # milliseconds


class HoldExtension:
    """The text that a stream may deliver before it must ask: `until`, which changes only when it was reached."""

    __slots__ = ("_ask", "_call", "_ledger", "_per_million", "_prompt", "_step", "until")

    def __init__(self, call: Call, ledger: Ledger) -> None:
        self._call = call
        self._ledger = ledger
        self._prompt = call.cost(call.quote.prompt)
        self._per_million = call.cost(structs.replace(call.quote.prompt, out_text=PER_MILLION)) - self._prompt
        bounded = call.quote.bounded
        reserve = call.cost(Usage(requests=0, out_text=call.model.default_reserve_output))
        # How much more at a time: where a limit was held in full only an estimate's error is missing, if anything.
        self._step = min(reserve, call.hold.amount // 4) if bounded else reserve
        self._ask = 1.0 if bounded else 0.8  # the share of the hold at which to ask for more
        self.until = self._quarters(self._ask)

    def due(self, delivered: Delivered) -> bool:
        """Whether the stream must ask for more."""
        return delivered.text_quarter_tokens >= self.until

    def _quarters(self, share: float) -> float:
        """Quarter tokens of output at which the call has used that share of its hold."""
        if not self._per_million:
            return math.inf
        call = self._call
        tokens = (call.hold.amount * share - self._prompt) * PER_MILLION / self._per_million
        return max(0.0, tokens * QUARTERS_PER_TOKEN / call.model.token_factor)

    def _cost(self, quarters: int) -> int:
        """What so many quarter tokens of output and the prompt come to."""
        tokens = quarters * self._call.model.token_factor / QUARTERS_PER_TOKEN
        return self._prompt + math.ceil(tokens * self._per_million / PER_MILLION)

    async def extend(self, delivered: Delivered) -> None:
        """Hold more for a stream that has delivered so much; raises what the caller is told when it must end."""
        call, quarters = self._call, delivered.text_quarter_tokens
        # A chunk may be dearer than a step; without what it overdrew the hold would stay behind for good.
        more = self._step + max(0, self._cost(quarters) - call.hold.amount)
        try:
            await self._ledger.extend(call.hold, max(1, more))
        except (BalanceExhausted, BudgetExceeded):
            if quarters >= self._quarters(1.0):
                raise
            self.until = self._quarters(1.0)
        except StoreUnavailable:
            self.until = (
                quarters + QUARTERS_PER_TOKEN * call.model.default_reserve_output
            )  # an answer outlives the store
        else:
            self.until = self._quarters(self._ask)


class SoundHoldExtension:
    """The same for spoken answers: milliseconds of sound, where the price depends on them."""

    def __init__(self, call: Call, ledger: Ledger, *, usage: Callable[[float], Usage]) -> None:
        self._call = call
        self._ledger = ledger
        self._start = call.cost(usage(0.0))
        self._per_million = call.cost(usage(PER_MILLION / 1000)) - self._start  # of milliseconds
        self.until = self._milliseconds()

    def due(self, delivered: Delivered) -> bool:
        """Whether the stream must ask for more."""
        return delivered.audio_ms >= self.until

    def _milliseconds(self) -> float:
        if not self._per_million:
            return math.inf
        return (self._call.hold.amount - self._start) * PER_MILLION / self._per_million

    async def extend(self, delivered: Delivered) -> None:
        """Hold half a minute more; raises what the caller is told when the account has none."""
        milliseconds = delivered.audio_ms
        overdrawn = self._start + milliseconds * self._per_million // PER_MILLION - self._call.hold.amount
        more = MORE_SOUND * self._per_million // PER_MILLION + max(0, overdrawn)
        try:
            await self._ledger.extend(self._call.hold, max(1, more))
        except StoreUnavailable:
            self.until = milliseconds + MORE_SOUND  # an answer outlives the store
        else:
            self.until = self._milliseconds()

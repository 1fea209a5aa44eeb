"""Extends the hold of a running stream before the stream has used it up.

A call without its own output limit holds a reserve, not the worst case, so a long answer extends its hold when four
fifths are used. A call with a limit holds the whole cost and extends only when more was delivered: the upstream ignored
the limit, or our estimate is too high. If the account has no more money, a call without a limit uses the rest of its
hold, and one with a limit as much again, because our count may be too high. Then it is cut. Audio and images of a chat
answer count as the text of the same price, so one comparison per chunk is enough. Sharp edge: the count is what was
delivered, because a cut stream is charged by that.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import structs

from gateway.billing.delivered import QUARTERS_PER_TOKEN, Delivered
from gateway.billing.usage import Usage
from gateway.errors import CostLimitExceeded, QuotaExhausted, StoreUnavailable
from gateway.inference.call import Call
from gateway.ledger import Ledger

PER_MILLION = 1_000_000
#: An upstream that keeps its limit stays within the hold of that limit, though our count of its text may be higher: so
#: the stream is cut at twice that hold.
ABOVE_HOLD = 2.0
MORE_AUDIO = 30_000  # milliseconds
MOST_WEIGHT = 1000  # where text is free, its price is taken as this part of the price of audio or images


class HoldExtension:
    """For text: `until` is the number of quarter tokens at which the hold is extended; it changes only when reached."""

    __slots__ = ("_call", "_cost_per_million", "_ledger", "_most", "_prompt", "_share", "_step", "until")

    def __init__(self, call: Call, ledger: Ledger) -> None:
        self._call = call
        self._ledger = ledger
        self._prompt = call.cost(call.quote.prompt)
        self._cost_per_million = call.cost(structs.replace(call.quote.prompt, out_text=PER_MILLION)) - self._prompt
        bounded = call.quote.bounded
        reserve = call.cost(Usage(requests=0, out_text=call.model.default_reserve_output))
        # The amount of one extension. Where a limit was held in full, only the error of an estimate may be missing.
        self._step = min(reserve, call.hold.amount // 4) if bounded else reserve
        self._weigh_media()
        self._share = 1.0 if bounded else 0.8  # the share of the hold at which it is extended
        self._most = self._quarters(ABOVE_HOLD) if bounded else 0.0
        self.until = self._quarters(self._share)

    def due(self, delivered: Delivered) -> bool:
        """Whether the stream must extend its hold."""
        return delivered.text_quarter_tokens >= self.until

    def _weigh_media(self) -> None:
        """Set the weights of audio and images that cost more than text."""
        call, prompt = self._call, self._call.quote.prompt
        price = call.quote.price.at(prompt.tokens_in)
        if price.audio_output <= price.output >= price.image_output:
            return
        audio = call.cost(structs.replace(prompt, out_audio=PER_MILLION)) - self._prompt
        image = call.cost(structs.replace(prompt, out_image=PER_MILLION)) - self._prompt
        if not (audio or image):  # the factor of the price is 0
            return
        if not self._cost_per_million:
            self._cost_per_million = max(1, max(audio, image) // MOST_WEIGHT)
            self._step = max(audio, image) * call.model.default_reserve_output // PER_MILLION
        text, delivered = self._cost_per_million * call.model.token_factor, call.encoder.delivered
        delivered.audio_weight, delivered.image_weight = max(1.0, audio / text), max(1.0, image / text)

    def _quarters(self, share: float) -> float:
        """The quarter tokens of output at which the call has used `share` of its hold."""
        if not self._cost_per_million:
            return math.inf
        call = self._call
        tokens = (call.hold.amount * share - self._prompt) * PER_MILLION / self._cost_per_million
        return max(0.0, tokens * QUARTERS_PER_TOKEN / call.model.token_factor)

    def _cost(self, quarters: int) -> int:
        """The cost of the prompt and `quarters` quarter tokens of output, in nano units."""
        tokens = quarters * self._call.model.token_factor / QUARTERS_PER_TOKEN
        return self._prompt + math.ceil(tokens * self._cost_per_million / PER_MILLION)

    async def extend(self, delivered: Delivered) -> None:
        """Hold more for a stream that has delivered `delivered`; raises the caller's error when the stream must end."""
        call, quarters = self._call, delivered.text_quarter_tokens
        # A chunk may cost more than a step. Without the overdrawn part the hold would always be too small.
        more = self._step + max(0, self._cost(quarters) - call.hold.amount)
        try:
            await self._ledger.extend(call.hold, max(1, more))
        except (QuotaExhausted, CostLimitExceeded):
            most = max(self._quarters(1.0), self._most)
            if quarters >= most:
                raise
            self.until = most
        except StoreUnavailable:
            # The answer goes on while the store is away.
            self.until = quarters + QUARTERS_PER_TOKEN * call.model.default_reserve_output
        else:
            self.until = self._quarters(self._share)


class AudioHoldExtension:
    """For speech: `until` is in milliseconds of audio, where the price depends on them."""

    def __init__(self, call: Call, ledger: Ledger, *, usage: Callable[[float], Usage]) -> None:
        self._call = call
        self._ledger = ledger
        self._start = call.cost(usage(0.0))
        self._cost_per_million = call.cost(usage(PER_MILLION / 1000)) - self._start  # of milliseconds
        self.until = self._milliseconds()

    def due(self, delivered: Delivered) -> bool:
        """Whether the stream must extend its hold."""
        return delivered.audio_ms >= self.until

    def _milliseconds(self) -> float:
        if not self._cost_per_million:
            return math.inf
        return (self._call.hold.amount - self._start) * PER_MILLION / self._cost_per_million

    async def extend(self, delivered: Delivered) -> None:
        """Hold half a minute more; raises the caller's error when the account has no more money."""
        milliseconds = delivered.audio_ms
        overdrawn = self._start + milliseconds * self._cost_per_million // PER_MILLION - self._call.hold.amount
        more = MORE_AUDIO * self._cost_per_million // PER_MILLION + max(0, overdrawn)
        try:
            await self._ledger.extend(self._call.hold, max(1, more))
        except StoreUnavailable:
            self.until = milliseconds + MORE_AUDIO  # the answer goes on while the store is away
        else:
            self.until = self._milliseconds()

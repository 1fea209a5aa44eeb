"""What a request may cost, before it is sent: an endpoint makes a quote, the ledger holds it.

Amounts are nano currency units (1e-9).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, structs

from gateway.billing.price import Price
from gateway.billing.usage import Usage


class Quoted(Protocol):
    """A model as a quote needs it."""

    @property
    def name(self) -> str: ...
    @property
    def groups(self) -> frozenset[str]: ...
    @property
    def price(self) -> Price: ...


class Quote(Struct, frozen=True):
    """The price is frozen here: a change of prices holds for the calls after this one."""

    model: str
    groups: frozenset[str]  # that may use the model
    price: Price
    prompt: Usage  # the estimated prompt alone
    worst_case: Usage  # what `hold` was computed from
    ceiling: tuple[int, int]  # tokens in and out beyond which an upstream's count is impossible
    hold: int  # cost of the worst case
    tokens: int  # charged to the token limits until the true count is known
    service_tier: str | None = None  # as asked
    choices: int = 1  # answers asked for; each may have the whole output
    output_limit: int | None = None  # tokens of output to ask the upstream for in place of the caller's limit
    bounded: bool = False  # an output limit is sent, so the hold covers the whole answer

    @classmethod
    def of(
        cls,
        model: Quoted,
        *,
        prompt: Usage,
        worst_case: Usage,
        ceiling: tuple[int, int],
        tokens: int | None = None,
        service_tier: str | None = None,
        choices: int = 1,
        output_limit: int | None = None,
        bounded: bool = False,
    ) -> Quote:
        """A quote at the model's price of this moment; `tokens` are those of the worst case unless given."""
        price = model.price
        return cls(
            model.name,
            model.groups,
            price,
            prompt,
            worst_case,
            ceiling,
            price.worst(worst_case, service_tier=service_tier),
            worst_case.tokens_in + worst_case.tokens_out if tokens is None else tokens,
            service_tier,
            choices,
            output_limit,
            bounded,
        )

    def clamped(self, worst_case: Usage, output_limit: int) -> Quote:
        """This quote with a smaller worst case, at the same price."""
        return structs.replace(
            self,
            worst_case=worst_case,
            hold=self.price.worst(worst_case, service_tier=self.service_tier),
            tokens=min(self.tokens, worst_case.tokens_in + worst_case.tokens_out),
            output_limit=output_limit,
            bounded=True,
        )

    def affordable(self, amount: int, *, output: Callable[[int], Usage], most: int) -> int:
        """The largest number up to `most` for which the worst case that `output` makes of it costs at most `amount`."""
        return bisect_right(
            range(1, most + 1),
            amount,
            key=lambda number: self.price.worst(output(number), service_tier=self.service_tier),
        )

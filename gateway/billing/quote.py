"""The highest cost of a request, before it is sent. An endpoint makes a quote and the ledger holds its amount.

Amounts are nano currency units (1e-9).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct, structs

from gateway.billing.price import Price
from gateway.billing.price_terms import LIST_PRICES, PriceTerms
from gateway.billing.usage import Usage


class Quoted(Protocol):
    """The attributes of a model that a quote uses."""

    @property
    def name(self) -> str: ...
    @property
    def groups(self) -> frozenset[str]: ...
    @property
    def price(self) -> Price: ...


class Quote(Struct, frozen=True):
    """The price and the worst case of one call. A later change of prices does not affect the call."""

    model: str
    groups: frozenset[str]  # groups that may use the model
    price: Price
    prompt: Usage  # the estimated prompt alone
    worst_case: Usage  # `hold` is the cost of this usage
    hold: int  # cost of the worst case
    tokens: int  # counted against the token limits until the true count is known
    service_tier: str | None = None  # the requested tier
    choices: int = 1  # requested answers; each may have the whole output
    output_limit: int | None = None  # limit of output tokens that is sent in place of the caller's limit
    bounded: bool = False  # an output limit is sent, so the hold covers the whole answer
    hidden: bool = False  # a candidate may reason without showing it
    share: int = 0  # a hold that does not fit may be lowered to 1/share of the free money; 0: it is never lowered
    least_output: int = 0  # but not below the cost of so many tokens of output for each choice
    documents: int = 0  # tokens of the prompt's text that are the estimate of documents
    vendor_input: int = 0  # tokens that tools which the upstream runs may add to the prompt
    least: int = 0  # that cost, set by `Endpoint.lowerable`; until then the hold is not lowered
    tags: Mapping[str, str] | None = None  # the caller's labels, which the ledger line gets
    session: str = ""  # the id of the session, which the ledger line gets
    terms: PriceTerms = LIST_PRICES  # of the account, at which the price was made

    @classmethod
    def of(
        cls,
        model: Quoted,
        *,
        prompt: Usage,
        worst_case: Usage,
        tokens: int | None = None,
        service_tier: str | None = None,
        choices: int = 1,
        output_limit: int | None = None,
        bounded: bool = False,
        hidden: bool = False,
        share: int = 0,
        least_output: int = 0,
        documents: int = 0,
        vendor_input: int = 0,
    ) -> Quote:
        """A quote at the model's current price; `tokens` defaults to those of the worst case."""
        price = model.price
        return cls(
            model.name,
            model.groups,
            price,
            prompt,
            worst_case,
            price.worst(worst_case, service_tier=service_tier),
            worst_case.tokens_in + worst_case.tokens_out if tokens is None else tokens,
            service_tier,
            choices,
            output_limit,
            bounded,
            hidden,
            share,
            least_output,
            documents,
            vendor_input,
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
            least=0,
        )

    def affordable(self, amount: int, *, output: Callable[[int], Usage], most: int) -> int:
        """The largest number up to `most` whose worst case, `output(number)`, costs at most `amount`."""
        return bisect_right(
            range(1, most + 1),
            amount,
            key=lambda number: self.price.worst(output(number), service_tier=self.service_tier),
        )

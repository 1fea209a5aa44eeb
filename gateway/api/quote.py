"""What a decoded request means for money: its price, what it may cost, and beyond which count a bill is absurd."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from copy import copy
from typing import Generic, TypeVar

from gateway.billing.usage import Usage
from gateway.catalog import Model

R = TypeVar("R")


class Terms(Generic[R]):
    """What a decoded request means for money."""

    def __init__(
        self,
        request: R,
        model: Model,
        prompt: Usage,
        worst_case: Usage,
        ceiling: tuple[int, int],
        *,
        service_tier: str | None = None,
        tokens: int | None = None,
    ) -> None:
        self.request = request
        self.model = model
        self.price = model.price  # frozen here: a change holds for the calls after this one
        self.prompt = prompt  # the prompt's estimate alone
        self.worst_case = worst_case  # what is held
        self.ceiling = ceiling  # tokens in and out beyond which a count is impossible
        self.service_tier = service_tier  # as asked
        self.tokens = worst_case.tokens_in + worst_case.tokens_out if tokens is None else tokens  # for the token limits

    def lowered(self, worst_case: Usage) -> Terms[R]:
        """These terms with a smaller worst case, at the same price."""
        terms = copy(self)
        terms.worst_case = worst_case
        terms.tokens = min(self.tokens, worst_case.tokens_in + worst_case.tokens_out)
        return terms

    def affordable(self, amount: int, *, output: Callable[[int], Usage], most: int) -> int:
        """The largest number up to `most` for which the worst case that `output` makes of it costs at most `amount`."""
        return bisect_right(
            range(1, most + 1),
            amount,
            key=lambda number: self.price.worst(output(number), service_tier=self.service_tier),
        )

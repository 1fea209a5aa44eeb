"""What follows from the answer to a line of a batch."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import errors
from gateway.runtime.batches.line_call import Attempt, Budget
from gateway.runtime.batches.verdict import LONGEST_PAUSE, pause_before, verdict_of


class Call:
    """A call that was admitted, with its cost."""

    def __init__(self, cost: int = 0) -> None:
        self.record = self
        self.cost = cost


def attempt(error: errors.GatewayError | None, call: Any = None) -> Attempt:
    """An attempt that ended with the error; 200 without one."""
    return Attempt("req_1", error.status if error is not None else 200, b"", error, call)


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (None, "final", "final"),
        (errors.InvalidApiKey(), "stop", "stop"),
        (errors.InsufficientPermissions(), "stop", "stop"),
        (errors.KeyRestricted(), "stop", "stop"),
        (errors.ModelNotPermitted(), "final", "final"),
        (errors.InvalidValue("x"), "final", "final"),
        (errors.BalanceExhausted(), "final", "final"),
        (errors.BudgetExceeded(), "final", "final"),
        (errors.BatchBudgetExceeded(), "final", "final"),
        (errors.RequestRateLimited(), "wait", "again"),
        (errors.TokenRateLimited(), "wait", "again"),
        (errors.ConcurrencyLimited(), "wait", "again"),
        (errors.StoreUnavailable(), "wait", "wait"),
        (errors.Overloaded(), "wait", "wait"),
        (errors.Draining(), "wait", "wait"),
        (errors.NoHealthyUpstream(), "again", "again"),
        (errors.PriceUnreadable(), "final", "final"),
        (errors.UpstreamTimeout(), "again", "again"),
        (errors.UpstreamRateLimited(), "again", "again"),
        (errors.UpstreamRejected(), "final", "final"),
        (errors.InternalError(), "again", "again"),
    ],
)
def test_verdict_before_and_after_an_admission(error: errors.GatewayError | None, before: str, after: str) -> None:
    assert verdict_of(attempt(error)) == before
    assert verdict_of(attempt(error, Call())) == after


def test_call_with_a_cost_is_never_repeated() -> None:
    assert verdict_of(attempt(errors.UpstreamTimeout(), Call(cost=1))) == "final"


def test_pauses_grow_and_are_bounded() -> None:
    failed = attempt(errors.UpstreamTimeout())
    pauses = [pause_before(failed, tries) for tries in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    assert pause_before(attempt(errors.RequestRateLimited(retry_after=7.0)), 0) == 7.0
    assert pause_before(attempt(errors.RequestRateLimited(retry_after=7_000.0)), 0) == LONGEST_PAUSE


def test_budget_is_shared_by_running_lines() -> None:
    budget = Budget(100, 40)
    budget.reserve(1, 30)
    with pytest.raises(errors.ConcurrencyLimited):
        budget.reserve(2, 40)
    with pytest.raises(errors.BatchBudgetExceeded):
        budget.reserve(2, 61)
    budget.reserve(1, 20)  # a lower hold replaces it
    budget.reserve(2, 40)
    budget.release(1)
    budget.reserve(3, 20)
    Budget(None, 0).reserve(1, 10**18)

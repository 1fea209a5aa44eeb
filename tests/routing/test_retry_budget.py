"""Extra attempts are a fifth of a model's calls, and one account gets at most half of them while others use it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from gateway.errors import UpstreamError, UpstreamUnreachable
from gateway.http_client.send_state import SendState, track
from gateway.routing.failure_count import REMEMBERED, WINDOW_SECONDS
from gateway.routing.retry_budget import BURST, RetryBudget
from tests.routing.test_dispatcher import Stage, script


def spent(budget: RetryBudget, account: str, *, now: float = 0.0, is_shared: bool = False) -> int:
    """How many attempts the account gets now."""
    count = 0
    while budget.spend(account, now, is_shared=is_shared):
        count += 1
    return count


def test_account_that_is_alone_gets_the_whole_budget() -> None:
    budget = RetryBudget()
    assert spent(budget, "acme") == BURST
    for _ in range(50):
        budget.earn()
    assert spent(budget, "acme") == 10


@pytest.mark.holds("routing.md#attempts-1")
def test_account_beside_others_gets_half_of_the_burst_and_half_of_what_the_calls_earn() -> None:
    budget = RetryBudget()
    assert spent(budget, "hostile", is_shared=True) == BURST / 2
    for _ in range(50):
        budget.earn()
    assert spent(budget, "hostile", is_shared=True) == 5
    assert spent(budget, "healthy", is_shared=True) == BURST / 2
    assert spent(budget, "third", is_shared=True) == 5, "what is left of the whole"


def test_account_beside_others_whose_calls_all_fail_gets_half() -> None:
    budget = RetryBudget()
    assert budget.spend("healthy", 0.0, is_shared=False)
    assert spent(budget, "hostile", now=1.0) == BURST / 2
    assert spent(budget, "hostile", now=1.0 + WINDOW_SECONDS) == BURST / 2 - 1, "nobody else uses the model any more"


def test_what_an_account_spent_while_it_was_alone_counts_when_others_come() -> None:
    budget = RetryBudget()
    spent(budget, "hostile")
    for _ in range(50):
        budget.earn()
    assert spent(budget, "hostile", is_shared=True) == 5
    assert spent(budget, "healthy", is_shared=True) == 5


def test_accounts_of_a_budget_are_bounded() -> None:
    budget = RetryBudget()
    for number in range(3 * REMEMBERED):
        budget.spend(f"a{number}", 0.0, is_shared=True)
    assert len(budget._accounts) == REMEMBERED


@pytest.mark.holds("routing.md#attempts-1")
async def test_failing_calls_of_one_account_leave_the_fallback_to_the_others() -> None:
    stage = Stage(targets=[{"provider": "a"}], fallbacks=["large"])

    async def call(account: str, **outcomes: object) -> None:
        track(SendState(account=account))
        await stage.call(script(**outcomes))

    await call("healthy")
    for _ in range(60):
        with suppress(UpstreamError):
            await call("hostile", a=UpstreamUnreachable())
    await call("healthy", a=UpstreamUnreachable())
    assert [place[0] for place in stage.places] == ["a", "a", "c"]

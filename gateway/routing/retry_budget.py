"""Limits the extra attempts of a worker to a fifth of its calls, so that retries never double the load of an outage.

Call `earn()` for every call and `spend()` before every attempt after the first. One account gets at most half of that
while other accounts use the model, so that its failing calls do not use up the fallbacks of the others. Sharp edge: a
full budget allows a burst of `BURST` attempts, so that fallback works when there are few calls. A call that does not
fail only counts: who uses a model is known from the answers of its targets, and from the attempts here.
"""

from __future__ import annotations

from gateway.routing.failure_count import NEVER, REMEMBERED, WINDOW_SECONDS

SHARE = 0.2
BURST = 20.0
OF_ONE_ACCOUNT = 0.5  # of the budget


class _Allowance:
    """Attempts that are left: a part of the budget, refilled by the calls since it was used last."""

    __slots__ = ("_calls", "_part", "left", "used_at")

    def __init__(self, part: float, calls: int) -> None:
        self._part = part
        self._calls = calls  # of the model when it was refilled
        self.left = BURST * part
        self.used_at = NEVER

    def refill(self, calls: int) -> None:
        """Add the share of the calls since the last time."""
        self.left = min(BURST * self._part, self.left + (calls - self._calls) * SHARE * self._part)
        self._calls = calls


class RetryBudget:
    """The budget of one model."""

    __slots__ = ("_accounts", "_calls", "_whole")

    def __init__(self) -> None:
        self._calls = 0
        self._whole = _Allowance(1.0, 0)
        self._accounts: dict[str, _Allowance] = {}  # those that spent last; the latest is the last

    def earn(self) -> None:
        """Count one call."""
        self._calls += 1

    def spend(self, account: str, now: float, *, is_shared: bool) -> bool:
        """Whether one more attempt for `account` is within the budget; it is then counted.

        `is_shared`: other accounts have had answers of the model lately.
        """
        whole, own = self._whole, self._of(account)
        whole.refill(self._calls)
        own.refill(self._calls)
        own.used_at = now
        if whole.left < 1.0 or (own.left < 1.0 and (is_shared or self._others_spend(account, now))):
            return False
        whole.left -= 1.0
        own.left = max(0.0, own.left - 1.0)
        return True

    def has_half(self, account: str) -> bool:
        """Whether half of it is left, for attempts that could be done without."""
        whole, own = self._whole, self._of(account)
        whole.refill(self._calls)
        own.refill(self._calls)
        return whole.left * 2 >= BURST and own.left * 2 >= BURST * OF_ONE_ACCOUNT

    def _of(self, account: str) -> _Allowance:
        own = self._accounts.pop(account, None) or _Allowance(OF_ONE_ACCOUNT, self._calls)
        self._accounts[account] = own
        if len(self._accounts) > REMEMBERED:
            del self._accounts[next(iter(self._accounts))]
        return own

    def _others_spend(self, account: str, now: float) -> bool:
        return any(other.used_at > now - WINDOW_SECONDS for name, other in self._accounts.items() if name != account)

"""Which accounts a target keeps failing, so that their calls use another target and only probe this one.

A circuit opens for all accounts, so the failures of one account do not open it. But the calls of this account need not
all try a target that fails each of them: after `ROW` failures without an answer to anyone, one of its calls in
`PROBE_EVERY` seconds does. It matters only where another target may serve the call. An answer to any account ends it.
Sharp edge: only failures that may have nothing to do with the request count: no connection, or a 5xx.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import UpstreamAuthError, UpstreamError, UpstreamRateLimited

ROW = 2
PROBE_EVERY = 20.0  # seconds
MOST = 64  # accounts of one target

#: Called with an account, the seconds for which it does not call the target, or 0 when the target answers, and whether
#: only this machine has met the failures.
OnOutage = Callable[[str, float, bool], None]


class AccountOutages:
    """The accounts of one target."""

    __slots__ = ("_is_local", "_on_change", "rows", "until")

    def __init__(self, on_change: OnOutage | None = None) -> None:
        self.until: dict[str, float] = {}  # by account: the monotonic time of its next probe
        self.rows: dict[str, int] = {}  # failures without an answer, by account
        self._is_local = False  # the last failure was of a connection
        self._on_change = on_change

    def __bool__(self) -> bool:
        return bool(self.until)

    def failed(self, error: UpstreamError, account: str, now: float) -> None:
        """A call of `account` failed."""
        if error.origin == "request" or isinstance(error, UpstreamRateLimited | UpstreamAuthError):
            return
        self._is_local = error.origin == "connection"
        row = self.rows.pop(account, 0) + 1
        self.rows[account] = row
        if len(self.rows) > MOST:
            del self.rows[next(iter(self.rows))]
        if row >= ROW:
            self._wait(account, now)

    def answered(self) -> None:
        """A call of any account was answered; called only where there are rows or probes to forget."""
        accounts = list(self.until)
        self.clear()
        if self._on_change is not None:
            for account in accounts:
                self._on_change(account, 0.0, self._is_local)

    def is_down(self, account: str, now: float) -> bool:
        """Whether calls of `account` shall use another target now; one call in `PROBE_EVERY` seconds does not."""
        until = self.until.get(account)
        if until is None:
            return False
        if now < until:
            return True
        self._wait(account, now)  # this call is the probe
        return False

    def apply(self, account: str, seconds: float, now: float) -> None:
        """Another worker has seen it; 0 seconds: the target answers."""
        if not seconds:
            self.clear()
            return
        self.rows[account] = max(ROW, self.rows.get(account, 0))
        self.until[account] = now + min(seconds, PROBE_EVERY)

    def clear(self) -> None:
        """Forget all failures."""
        self.rows.clear()
        self.until.clear()

    def _wait(self, account: str, now: float) -> None:
        self.until.pop(account, None)
        self.until[account] = now + PROBE_EVERY
        if len(self.until) > MOST:
            del self.until[next(iter(self.until))]
        if self._on_change is not None:
            self._on_change(account, PROBE_EVERY, self._is_local)

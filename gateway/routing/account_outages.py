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
FORGET = 300.0  # seconds; as long as a circuit is open at most
MOST = 64  # accounts of one target

#: Called with an account, the seconds for which it does not call the target, or 0 when the target answers, and whether
#: only this machine has met the failures.
OnOutage = Callable[[str, float, bool], None]


class AccountOutages:
    """The accounts of one target."""

    __slots__ = ("_is_local", "_on_change", "rows", "until")

    def __init__(self, on_change: OnOutage | None = None) -> None:
        # Both by account, the oldest one first; times are monotonic.
        self.until: dict[str, float] = {}  # the time of its next probe
        self.rows: dict[str, tuple[float, int]] = {}  # the time of its last failure, and failures without an answer
        self._is_local = False  # the last failure was of a connection
        self._on_change = on_change

    def __bool__(self) -> bool:
        return bool(self.until)

    def failed(self, error: UpstreamError, account: str, now: float) -> None:
        """A call of `account` failed."""
        if error.origin == "request" or isinstance(error, UpstreamRateLimited | UpstreamAuthError):
            return
        self._is_local = error.origin == "connection"
        self._forget(now)
        if self._count(account, now, least=1) >= ROW:
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
        self._forget(now)
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
        self._forget(now)
        self._count(account, now, least=ROW)
        self._set(account, now + min(seconds, PROBE_EVERY))

    def clear(self) -> None:
        """Forget all failures."""
        self.rows.clear()
        self.until.clear()

    def _count(self, account: str, now: float, *, least: int) -> int:
        """Count a failure, and at least `least` in all."""
        _, row = self.rows.pop(account, (now, 0))
        row = max(row + 1, least)
        self.rows[account] = (now, row)
        if len(self.rows) > MOST:
            del self.rows[next(iter(self.rows))]
        return row

    def _wait(self, account: str, now: float) -> None:
        self._set(account, now + PROBE_EVERY)
        if self._on_change is not None:
            self._on_change(account, PROBE_EVERY, self._is_local)

    def _set(self, account: str, until: float) -> None:
        self.until.pop(account, None)
        self.until[account] = until
        if len(self.until) > MOST:
            del self.until[next(iter(self.until))]

    def _forget(self, now: float) -> None:
        """Leave out the accounts without a failure or a probe within `FORGET` seconds."""
        for account, (at, _) in list(self.rows.items()):
            if at > now - FORGET:
                break
            del self.rows[account]
        for account, until in list(self.until.items()):
            if until > now - FORGET:
                break
            del self.until[account]

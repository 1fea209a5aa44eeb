"""Which failures of a target count for its circuit, so that one caller cannot close a target to the others.

A failure counts once per account, except while no other account has had an answer of the target for `WINDOW_SECONDS`.
Then a failed connection counts each time, because no request can cause it, and a 5xx counts once per account and body,
because a body can cause it. What a request may always cause (a timeout, a 4xx) counts once per account in any case.
Exceptions of the provider's code count like a 5xx, and by their share of the calls. Sharp edge: a success costs a few
stores and no search; the other account with the latest success is known, not all accounts.
"""

from __future__ import annotations

import math
from collections import deque

from gateway.errors import FailureOrigin

IN_A_ROW = 5
WINDOW, WINDOW_SECONDS = 20, 10.0
FAULTS_WITHIN = 60.0  # seconds in which faults of a provider's code are compared with the answers
REMEMBERED = 64  # accounts and bodies whose failure was counted
NEVER = -math.inf

Key = tuple[str, str, int]  # kind, account, digest of the body or 0


class FailureCount:
    """The results of one target: its latest successes, and the failures that count."""

    __slots__ = (
        "_account", "_began", "_counted", "_faults", "_faults_since", "_good_before", "_other_at",
        "_recent", "good", "row", "success_at",
    )  # fmt: skip

    def __init__(self) -> None:
        self.good = 0  # answers so far
        self.row = 0  # failures that count since the last success
        self.success_at = NEVER
        self._account = ""  # of the last success
        self._other_at = NEVER  # the last success of any other account
        self._began = NEVER  # of the row
        self._recent: deque[tuple[float, bool]] = deque(maxlen=WINDOW)
        self._counted: dict[Key, float] = {}
        self._faults = 0
        self._faults_since = NEVER
        self._good_before = 0

    def succeeded(self, now: float, account: str) -> None:
        """An answer, or a first chunk, for `account`."""
        if account != self._account:
            self._other_at, self._account = self.success_at, account
        self.success_at = now
        self.good += 1
        self.row = 0
        self._recent.append((now, True))

    def counts(self, origin: FailureOrigin, account: str, digest: int, now: float) -> bool:
        """Note a failure; whether it counts."""
        since = min(now - WINDOW_SECONDS, self._began if self.row else now)
        if not self._is_first(origin, account, digest, now, since=since):
            return False
        if not self.row:
            self._began = now
        self.row += 1
        self._recent.append((now, False))
        return True

    def are_enough(self, now: float) -> bool:
        """Whether the failures open the circuit: five in a row, or half of the last twenty within ten seconds."""
        return self.row >= IN_A_ROW or self._half_failed(now)

    def fault(self, account: str, digest: int, now: float) -> bool:
        """Note an exception of the provider's code; whether it counts."""
        if not self._is_first("fault", account, digest, now, since=now - FAULTS_WITHIN):
            return False
        if now - self._faults_since > FAULTS_WITHIN:
            self._faults_since, self._faults, self._good_before = now, 0, self.good
        self._faults += 1
        return True

    def faults_are_enough(self) -> bool:
        """Whether there were at least five faults within a minute, and no more answers than faults."""
        return self._faults >= IN_A_ROW and self._faults >= self.good - self._good_before

    def answered_lately(self, now: float) -> bool:
        """Whether there was an answer within the window."""
        return self.success_at > now - WINDOW_SECONDS

    def works(self, now: float, *, used_within: float) -> bool:
        """Whether the target has answered lately, and not only failed since."""
        return self.answered_lately(now) or (not self.row and self.success_at > now - used_within)

    def others_answered(self, account: str, now: float) -> bool:
        """Whether an account other than `account` had an answer within the window."""
        others_at = self.success_at if account != self._account else self._other_at
        return others_at > now - WINDOW_SECONDS

    def opened(self) -> None:
        """The circuit opens: each account may count again."""
        self._counted.clear()

    def clear(self) -> None:
        """Forget the failures."""
        self.row, self._faults, self._faults_since = 0, 0, NEVER
        self._recent.clear()
        self._counted.clear()

    def _is_first(self, origin: str, account: str, digest: int, now: float, *, since: float) -> bool:
        """Whether the failure is the first of its kind since then; it is remembered."""
        alone = not self.others_answered(account, now)
        if alone and origin == "connection":
            return True
        by_body = alone and origin in ("answer", "fault")
        key = ("fault" if origin == "fault" else "", account, digest if by_body else 0)
        if self._counted.get(key, NEVER) >= since:
            return False
        self._counted.pop(key, None)  # the oldest key stands first
        self._counted[key] = now
        if len(self._counted) > REMEMBERED:
            del self._counted[next(iter(self._counted))]
        return True

    def _half_failed(self, now: float) -> bool:
        recent = self._recent
        if len(recent) < WINDOW or recent[0][0] < now - WINDOW_SECONDS:
            return False
        return sum(not succeeded for _, succeeded in recent) * 2 >= WINDOW

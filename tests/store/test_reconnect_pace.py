"""How soon a link connects again after a loss."""

from __future__ import annotations

import pytest

from gateway.store.reconnect_pace import MAX_BACKOFF, MIN_BACKOFF, QUICK, SETTLED_AFTER, ReconnectPace


@pytest.mark.holds("operations/redis.md#a-slow-store-2")
def test_pause_is_short_after_a_connection_that_helped_and_grows_after_others() -> None:
    pace = ReconnectPace()
    for _ in range(20):
        pace.helped()
        assert 0 < pace.pause(0.0) <= QUICK
    backoff = QUICK
    while backoff < MAX_BACKOFF:
        backoff = min(2 * backoff, MAX_BACKOFF)
        assert backoff / 2 <= pace.pause(0.0) <= backoff
    pace.helped()
    assert pace.pause(0.0) <= QUICK


def test_pause_counts_from_the_attempt_and_is_none_after_a_settled_connection() -> None:
    pace = ReconnectPace()
    assert pace.pause(SETTLED_AFTER * 1.01) == 0
    assert MIN_BACKOFF / 2 <= pace.pause(0.0) <= 2 * MIN_BACKOFF
    pace.helped()
    assert pace.pause(QUICK) == 0

"""Counts within a time."""

from __future__ import annotations

import pytest

from gateway.web.window_counts import WindowCounts


def test_count_is_of_the_time_since_its_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr("gateway.web.window_counts.monotonic", lambda: now[0])
    counts = WindowCounts(60, remembered=10)
    assert counts.count("ann") == (0, 0.0)
    counts.add("ann")
    now[0] += 50
    counts.add("ann")
    assert counts.count("ann") == (2, 10.0) and counts.count("ben") == (0, 0.0)
    now[0] += 10
    assert counts.count("ann") == (0, 0.0)
    counts.add("ann")
    assert counts.count("ann") == (1, 60.0)


def test_names_that_were_counted_longest_ago_are_forgotten() -> None:
    counts = WindowCounts(60, remembered=2)
    for name in ("ann", "ben", "ann", "eve"):
        counts.add(name)
    assert [counts.count(name)[0] for name in ("ann", "ben", "eve")] == [2, 0, 1]

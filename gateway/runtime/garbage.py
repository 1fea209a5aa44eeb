"""Python's garbage collection in processes that make many objects and few cycles."""

from __future__ import annotations

import gc


def collect_rarely() -> None:
    """Leave what exists out of all collections, and collect after many more new objects than usual.

    A collection looks at every object of its generation. Call it once everything is imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)

"""The counts of a reranking: tokens, search units, or both; a count that is no number is left out."""

from __future__ import annotations

from typing import Any

from gateway import CompletionUsage, completion_usage


def rerank_usage(tokens: Any, units: Any) -> CompletionUsage | None:
    """The usage with the counts that the upstream has; None if it has none."""
    usage = completion_usage({"prompt_tokens": tokens, "completion_tokens": 0}) or CompletionUsage(0, 0, 0)
    if isinstance(units, int | float) and not isinstance(units, bool) and units > 0 and units == units // 1:
        usage.search_units = int(units)
    return usage if usage.prompt_tokens or usage.search_units else None

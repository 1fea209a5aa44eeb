"""The check of an estimate against a model's context window, where no exact count is known."""

from __future__ import annotations

from gateway.catalog import Model
from gateway.errors import ContextLengthExceeded


def check_window(model: Model, tokens: int, what: str, *, param: str, counted: bool = False) -> None:
    """ContextLengthExceeded if `what` cannot fit; tokens that are not `counted` may be wrong by a factor of two."""
    window = model.context_window
    if window is not None and (tokens if counted else tokens // 2) > window:
        raise ContextLengthExceeded(f"{what} exceeds this model's context length of {window} tokens.", param=param)

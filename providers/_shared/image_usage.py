"""The usage of several images as one."""

from __future__ import annotations

from msgspec import UNSET

from gateway import ImageUsage


def add_usage(whole: ImageUsage, part: ImageUsage) -> None:
    """Add `part` to `whole`; token details are added only if both have them."""
    whole.input_tokens += part.input_tokens
    whole.output_tokens += part.output_tokens
    whole.total_tokens += part.total_tokens
    for name in ("input_tokens_details", "output_tokens_details"):
        total, details = getattr(whole, name), getattr(part, name)
        if total is not UNSET and details is not UNSET:
            total.text_tokens += details.text_tokens
            total.image_tokens += details.image_tokens

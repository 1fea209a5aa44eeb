"""The rows of the price page: which models are shown, in which order, and their other prices in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gateway.billing.price import ANY

MAIN = ("input", "cached_input", "output")  # with a column of their own, per 1,000,000 tokens
TOKENS = "per 1,000,000 tokens"
#: The other amounts of a price: what is paid, and for what.
UNITS: Mapping[str, tuple[str, str]] = {
    "cache_write": ("cache write", TOKENS),
    "cache_write_long": ("long cache write", TOKENS),
    "reasoning": ("reasoning", TOKENS),
    "audio_input": ("audio input", TOKENS),
    "cached_audio_input": ("cached audio input", TOKENS),
    "audio_output": ("audio output", TOKENS),
    "image_input": ("image input", TOKENS),
    "image_output": ("image output", TOKENS),
    "per_character": ("text to speech", "per 1,000,000 characters"),
    "per_second_in": ("audio input", "per second"),
    "per_second_out": ("audio output", "per second"),
    "per_request": ("request", "each"),
    "per_search_unit": ("search unit", "each"),
    "per_web_search": ("web search", "each"),
    "minimum": ("at least", "per call"),
}
NOT_AMOUNTS = frozenset({"per_image", "tiers", "service_tier_multiplier", "currency", "effective_from"})
SORTS: Mapping[str, str] = {"name": "Model", "input": "Input", "output": "Output", "context": "Context"}


def price_rows(
    models: Sequence[dict[str, Any]], *, search: str, endpoint: str, sort: str, descending: bool
) -> list[dict[str, Any]]:
    """The models whose name, alias or provider's name contains the text, and that serve the endpoint, in order."""
    wanted = search.lower()
    rows = [
        model
        for model in models
        if (not endpoint or endpoint in model["endpoints"])
        and any(wanted in name.lower() for name in (model["id"], *model["aliases"]))
    ]
    key = _KEYS.get(sort, _KEYS["name"])
    with_value = [row for row in rows if key(row) is not None]
    without = [row for row in rows if key(row) is None]
    return [*sorted(with_value, key=key, reverse=descending), *without]


def other_prices(price: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is paid, the amount and the unit, for all that has no column of its own."""
    found = [(*UNITS[name][:1], price[name], UNITS[name][1]) for name in UNITS if name in price]
    for size, amounts in price.get("per_image", {}).items():
        for quality, amount in amounts.items():
            others = len(price["per_image"]) > 1, len(amounts) > 1
            found.append((_image(size, quality, *others), amount, "each"))
    for tier in price.get("tiers", []):
        above = f"above {tier['above_input_tokens']:,} input tokens: "
        for name, amount in tier.items():
            if name in MAIN:
                found.append((above + name.replace("_", " "), amount, TOKENS))
            elif name in UNITS:
                found.append((above + UNITS[name][0], amount, UNITS[name][1]))
    return found


def _image(size: str, quality: str, has_sizes: bool, has_qualities: bool) -> str:
    """`image, 1024x1024, low`; the price of every other size or quality says so, if there are others."""
    shown_size = ("other sizes" if has_sizes else "") if size == ANY else size
    shown_quality = ("other qualities" if has_qualities else "") if quality == ANY else quality
    return ", ".join(filter(None, ("image", shown_size, shown_quality)))


def _amount(name: str) -> Callable[[dict[str, Any]], Any]:
    def value(row: dict[str, Any]) -> Decimal | None:
        text = row["price"].get(name)
        return Decimal(text) if text is not None else None

    return value


_KEYS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: row["id"],
    "input": _amount("input"),
    "output": _amount("output"),
    "context": lambda row: row["context_window"],
}

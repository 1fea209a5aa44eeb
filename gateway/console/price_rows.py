"""The rows of the price page: which models are shown, in which order, and their other prices in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.billing.price import ANY
from gateway.config.settings import ModelSettings
from gateway.console.elements import amount_text

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
EVENTS = frozenset({"stream", "stream_format"})  # of `unsupported_params`: speech or transcripts without events
NOT_AMOUNTS = frozenset({"per_image", "tiers", "service_tier_multiplier", "currency", "effective_from"})
SORTS: Mapping[str, str] = {"name": "Model", "input": "Input", "output": "Output", "context": "Context"}


def fitting_models(models: Mapping[str, ModelSettings], *, search: str, endpoint: str) -> list[str]:
    """The models whose name or alias contains the text, and that serve the endpoint."""
    wanted = search.lower()
    return [
        id_
        for id_, model in models.items()
        if (not endpoint or endpoint in model.endpoints)
        and any(wanted in name.lower() for name in (id_, *model.aliases))
    ]


def in_order(names: Iterable[str], value: Callable[[str], Any], *, descending: bool) -> list[str]:
    """The models by a value; those without one at the end."""
    values = {name: value(name) for name in names}
    with_value = [name for name, one in values.items() if one is not None]
    return [
        *sorted(with_value, key=values.__getitem__, reverse=descending),
        *(name for name, one in values.items() if one is None),
    ]


def other_prices(price: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is paid, the amount and the unit, for all that has no column of its own. The prices of an image are one."""
    found = [(*UNITS[name][:1], amount_text(price[name]), UNITS[name][1]) for name in UNITS if name in price]
    for size, amounts in price.get("per_image", {}).items():
        found.append((_image(size, len(price["per_image"]) > 1), _qualities(amounts), "each"))
    for tier in price.get("tiers", []):
        above = f"above {tier['above_input_tokens']:,} input tokens: "
        for name, amount in tier.items():
            if name in MAIN:
                found.append((above + name.replace("_", " "), amount_text(amount), TOKENS))
            elif name in UNITS:
                found.append((above + UNITS[name][0], amount_text(amount), UNITS[name][1]))
    return found


def capabilities(model: Mapping[str, Any]) -> list[str]:
    """What a model can do and what it cannot, as the configuration says: one line each."""
    lines = [", ".join(model["endpoints"])]
    if model["reasoning"]:
        lines.append("reasoning")
    ignored = [name for name in model["unsupported_params"] if name not in EVENTS]
    if EVENTS.intersection(model["unsupported_params"]):
        lines.append("not streamed")
    if ignored:
        lines.append(f"ignores {', '.join(ignored)}")
    return lines


def _image(size: str, has_sizes: bool) -> str:
    """`image, 1024x1024`; the price of every other size says so, if there are others."""
    return "image, " + ("other sizes" if size == ANY else size) if has_sizes or size != ANY else "image"


def _qualities(amounts: Mapping[str, str]) -> str:
    """`low 0.01, high 0.16, others 0.04`, or the only amount."""
    if set(amounts) == {ANY}:
        return amount_text(amounts[ANY])
    names = {quality: "others" if quality == ANY else quality for quality in amounts}
    return ", ".join(f"{names[quality]} {amount_text(amount)}" for quality, amount in amounts.items())

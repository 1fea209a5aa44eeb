"""Makes a table of public prices for `gateway/config/prices` out of the package genai-prices.

    pip install genai-prices && python conf/prices/generate.py gateway/config/prices/2026-11.toml

Run by hand when a release is prepared, in an environment of its own: the gateway does not depend on the package. A
table that was released is not made again, since configurations may name it; a later one gets a new name.
Sharp edge: what the gateway cannot charge for (batches, pages, times of day) is left out, and where a price depends on
it the dearer one is taken. A model whose price would charge too little has no row, and is named on stderr.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, Decimal
from importlib.metadata import distribution, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: Vendors that serve models themselves; marketplaces that repeat their prices are left out.
PROVIDERS = {
    "anthropic",
    "aws",
    "azure",
    "baseten",
    "cerebras",
    "cloudflare",
    "cohere",
    "deepseek",
    "elevenlabs",
    "fireworks",
    "google",
    "groq",
    "meta",
    "minimax",
    "mistral",
    "moonshotai",
    "openai",
    "perplexity",
    "together",
    "voyageai",
    "x-ai",
    "zai",
}

#: Their unit → our key, and how many of our units theirs is.
UNITS = {
    "input_mtok": ("input", 1),
    "cache_read_mtok": ("cached_input", 1),
    "cache_write_mtok": ("cache_write", 1),
    "cache_write_1h_mtok": ("cache_write_long", 1),
    "output_mtok": ("output", 1),
    "output_reasoning_mtok": ("reasoning", 1),
    "input_audio_mtok": ("audio_input", 1),
    "cache_audio_read_mtok": ("cached_audio_input", 1),
    "output_audio_mtok": ("audio_output", 1),
    "input_image_mtok": ("image_input", 1),
    "output_image_mtok": ("image_output", 1),
    "input_mchars": ("per_character", 1),
    "audio_hours": ("per_second_in", 3600),
    "input_audio_hours": ("per_second_in", 3600),
    "requests_kcount": ("per_request", 1000),
    "web_searches_kcount": ("per_web_search", 1000),
}

#: Rows of the source that a second source does not support: the price table of litellm 1.109.1.
UNSUPPORTED = {
    "deepseek/deepseek-chat": "ended on 2026-07-24, last at 0.28 and 0.42 instead of 0.27 and 1.1",
    "deepseek/deepseek-reasoner": "ended on 2026-07-24, last at 0.28 and 0.42 instead of 0.55 and 2.19",
    "deepseek/deepseek-v3.1-terminus": "the second source has no such model of this vendor",
    "deepseek/deepseek-v3.2": "0.28 and 0.4 in the second source instead of 0.2288 and 0.3432",
    "deepseek/deepseek-v3.2-exp": "the second source has no such model of this vendor",
}

#: Models that answer with no text: the source has the price of their one kind of output as `output`.
SOLE_OUTPUT = {"image_output": re.compile(r"^gpt-image-"), "audio_output": re.compile(r"(^|-)tts(-|$)")}

#: Words in the name of a model, and the prices of which it then needs one.
NEEDED = (
    ({"image", "banana"}, {"image_output"}),
    ({"tts", "speech"}, {"audio_output", "per_character"}),
    ({"audio", "realtime", "live", "voice", "sonic"}, {"audio_input", "audio_output", "per_second_in"}),
    ({"transcribe", "whisper"}, {"audio_input", "per_second_in"}),
)

#: Service tiers that no vendor sells below the standard price.
FASTER = ("priority", "fast")

HEAD = """\
# Public prices of model providers in USD, as of {today}; made by conf/prices/generate.py. Do not edit: a
# configuration may rely on it.
#
# Source: genai-prices {version}, https://github.com/pydantic/genai-prices
#
# {licence}
"""


def main(target: Path) -> None:
    from genai_prices.data import providers

    today = datetime.now(UTC).date()
    [licence] = [file for file in distribution("genai-prices").files or () if file.name == "LICENSE"]
    text = licence.read_text().strip().replace("\n", "\n# ").replace("# \n", "#\n")
    lines = [HEAD.format(today=today, version=version("genai-prices"), licence=text)]
    for provider in sorted(providers, key=lambda provider: provider.id):
        if provider.id in PROVIDERS:
            lines += sorted(entries(provider, today))
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def entries(provider: Any, today: date) -> Iterator[str]:
    """A line of TOML for each model that has a price we can charge."""
    for model in provider.models:
        prices = list(dated(model, today))
        name = f"{provider.id}/{model.id}"
        reason = UNSUPPORTED.get(name) or next(filter(None, (fault(model, price) for price in prices)), None)
        if prices and reason:
            sys.stderr.write(f"{name}: {reason}\n")
        elif prices:
            tables = ", ".join(inline(price) for price in prices)
            yield f"{json.dumps(name)} = {tables if len(prices) == 1 else f'[{tables}]'}"


def fault(model: Any, price: dict[str, Any]) -> str | None:
    """Why this price would charge too little; None when it would not."""
    words = set(re.split(r"[^a-z]+", model.id.rpartition("/")[2].lower()))
    for kind, needed in NEEDED:
        if words & kind and not needed & price.keys():
            return f"no price of its kind: {' or '.join(sorted(needed))}"
    rules = model.prices if isinstance(model.prices, list) else [SimpleNamespace(prices=model.prices)]
    if any(getattr(rule.prices, "output_video_mtok", None) is not None for rule in rules):
        return "video in its answers, which has a price of its own"
    for tier, factor in price.get("service_tier_multiplier", {}).items():
        if tier in FASTER and factor < 1:
            return f"the service tier {tier!r} at {factor} of the standard price"
    return None


def dated(model: Any, today: date) -> Iterator[dict[str, Any]]:
    """The price of today, and those announced; none when it is zero, which may only mean that nobody knows."""
    starts = {
        rule.constraint.start_date
        for rule in (model.prices if isinstance(model.prices, list) else ())
        if hasattr(rule.constraint, "start_date")
    }
    current = max((start for start in starts if start <= today), default=None)
    for start in [current, *sorted(start for start in starts if start > today)]:
        price = table(standard(model, start or today), model, start or today)
        if not any(isinstance(value, Decimal) and value for value in price.values()):
            return
        if start is not None:
            price["effective_from"] = start
        yield price


def standard(model: Any, day: date) -> Any:
    """What a model costs on a day; of the prices by time of day the dearest."""
    if not isinstance(model.prices, list):
        return model.prices
    timeless = [rule for rule in model.prices if not hasattr(rule.constraint, "start_time")]
    active = [rule for rule in timeless if rule.constraint is None or rule.constraint.start_date <= day]
    hourly = [rule for rule in model.prices if hasattr(rule.constraint, "start_time")]
    candidates = [(active or model.prices)[-1], *hourly]
    return max((rule.prices for rule in candidates), key=lambda prices: base(prices.output_mtok or prices.input_mtok))


def table(prices: Any, model: Any, day: date) -> dict[str, Any]:
    """A price as the gateway's keys."""
    out: dict[str, Any] = {}
    starts: set[int] = set()
    for theirs, (ours, per) in UNITS.items():
        value = getattr(prices, theirs, None)
        if value is not None:
            out[ours] = amount(base(value), per)
            starts |= {tier.start for tier in getattr(value, "tiers", ())}
    for key, pattern in SOLE_OUTPUT.items():
        if "output" in out and pattern.search(model.id):
            out.setdefault(key, out["output"])
    tiers = [tier_of(prices, start) for start in sorted(starts)]
    if tiers:
        out["tiers"] = tiers
    multipliers = dict(factors(prices, model, day))
    if multipliers:
        out["service_tier_multiplier"] = multipliers
    return out


def tier_of(prices: Any, start: int) -> dict[str, Any]:
    """What is charged beyond `start` tokens of prompt."""
    out: dict[str, Any] = {"above_input_tokens": start}
    for theirs, (ours, per) in UNITS.items():
        steps = [tier.price for tier in getattr(getattr(prices, theirs, None), "tiers", ()) if tier.start <= start]
        if steps:
            out[ours] = amount(steps[-1], per)
    return out


def factors(prices: Any, model: Any, day: date) -> Iterator[tuple[str, Decimal]]:
    """The factor of each service tier: where it differs by kind of token, the highest of prompt and answer."""
    variants = [variant for variant in model.price_variants or () if set(variant.when) == {"service_tier"}]
    # The source has no order: the variant that began last is in force, and comes last here.
    for variant in sorted(variants, key=started):
        if started(variant) <= day:
            ratios = [
                base(getattr(variant.prices, unit)) / base(getattr(prices, unit))
                for unit in ("input_mtok", "output_mtok")
                if getattr(variant.prices, unit, None) and base(getattr(prices, unit, None))
            ]
            if ratios:
                factor = max(ratios).quantize(Decimal("0.000001"), ROUND_CEILING)
                yield variant.when["service_tier"], factor


def started(variant: Any) -> date:
    return getattr(variant.constraint, "start_date", date.min)


def base(value: Any) -> Decimal:
    return Decimal(getattr(value, "base", value) or 0)


def amount(value: Decimal, per: int) -> Decimal:
    """At most nine decimal places, rounded up."""
    return (value / per).quantize(Decimal("0.000000001"), ROUND_CEILING)


def inline(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {inline(item)}" for name, item in value.items()) + " }"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return str(value)


def plain(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Warnings about settings that are valid and probably not meant: `gateway check` and `gateway serve` show the same.

Nothing here refuses a configuration. A side port that others can reach may be what an orchestrator's probes need; an
upstream without TLS may be on a private network; a price may be in a currency of small units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from gateway.amounts import NANO, format_amount
from gateway.config.loopback import is_loopback
from gateway.config.settings import ModelSettings, PriceSettings, Settings
from gateway.config.toml_reader import Key, dotted
from gateway.config.validation import costs_of, with_keys

# Public prices per 1,000,000 tokens lie between 0.01 and 600 dollars.
LOWEST = NANO // 10_000
HIGHEST = 5_000 * NANO
HIGHEST_EACH = 1_000 * NANO  # of a second, an image or a request
HIGHEST_FACTOR = 10 * NANO
STRONG = frozenset({"", "USD", "EUR", "GBP", "CHF", "CAD", "AUD"})  # a unit of any other may be worth much less
PER_MILLION = frozenset(
    {
        "input", "cached_input", "cache_write", "cache_write_long", "output", "reasoning", "audio_input",
        "cached_audio_input", "audio_output", "image_input", "image_output", "per_character",
    }
)  # fmt: skip


def advise(settings: Settings) -> tuple[str, ...]:
    """One text per setting, each with its key."""
    return (
        *_side_port(settings),
        *_console(settings),
        *_sign_in(settings),
        *_plain_upstreams(settings),
        *_fallback_cycles(settings.models),
        *_factors(settings),
        *(text for name, model in settings.models.items() for text in _prices(model, ("models", name))),
    )


def _side_port(settings: Settings) -> Iterator[str]:
    host = settings.metrics.host
    if not is_loopback(host):
        yield f"metrics.host: the side port has no authentication, and {host} lets other machines read it"


def _console(settings: Settings) -> Iterator[str]:
    host = settings.console.host
    if settings.console.enabled and not is_loopback(host) and not settings.server.tls_cert:
        yield f"console.host: server.tls_cert is not set, and {host} lets other machines send tokens without encryption"


def _sign_in(settings: Settings) -> Iterator[str]:
    console = settings.console
    url = console.public_url
    if settings.oidc and not console.pages:
        yield "oidc: nobody signs in, because console.pages is false"
    if settings.oidc and not url:
        yield f"console.public_url: missing; people can sign in by OIDC at {settings.console_url} on this machine only"
    elif settings.oidc and (host := _plain_http_host(url)) and not is_loopback(host):
        yield "console.public_url: codes of identity providers come back without encryption; use https"
    if console.signup != "closed" and not settings.oidc and not settings.mail.host:
        yield f"console.signup: {console.signup} needs [mail] or [oidc.NAME], so that addresses are verified"


def _plain_upstreams(settings: Settings) -> Iterator[str]:
    for name, provider in settings.providers.items():
        key: Key = ("providers", name)
        places = [(key, provider.options)]
        places += [((*key, "credentials", index), one) for index, one in enumerate(provider.credentials)]
        for place, options in places:
            for option, value in options.items():
                host = _plain_http_host(value)
                if host and not is_loopback(host):
                    where = dotted((*place, option))
                    yield f"{where}: prompts and keys go to {host} without encryption; use https unless it is private"


def _plain_http_host(value: Any) -> str:
    """The host of an http address; empty for anything else."""
    if not isinstance(value, str) or not value.lower().startswith("http://"):
        return ""
    try:
        return urlsplit(value).hostname or ""
    except ValueError:
        return ""


def _factors(settings: Settings) -> Iterator[str]:
    for name, group in settings.groups.items():
        where, factor = dotted(("groups", name, "price_factor")), group.price_factor
        if factor == 0:
            yield f"{where}: 0 makes every call of the group free"
        elif factor > HIGHEST_FACTOR:
            yield f"{where}: {format_amount(factor)} looks like a percentage; 1.1 is 10 % more"


def _fallback_cycles(models: Mapping[str, ModelSettings]) -> Iterator[str]:
    """Each cycle once. It does no harm, for the fallbacks of a fallback are not tried; its author may expect it."""
    aliases = {alias: name for name, model in models.items() for alias in model.aliases}
    reported: set[frozenset[str]] = set()
    for name in models:
        cycle = _cycle_from(name, models, aliases)
        if cycle and frozenset(cycle) not in reported:
            reported.add(frozenset(cycle))
            text = " → ".join((*cycle, cycle[0]))
            yield f"{dotted(('models', name, 'fallbacks'))}: {text} is a cycle; fallbacks of a fallback are not tried"


def _cycle_from(start: str, models: Mapping[str, ModelSettings], aliases: Mapping[str, str]) -> list[str]:
    """The names of a cycle through `start`, beginning with it; empty if there is none. Each model is seen once."""
    paths, seen = [[start]], {start}
    while paths:
        path = paths.pop()
        model = models.get(path[-1])
        for fallback in model.fallbacks if model is not None else ():
            name = aliases.get(fallback, fallback)
            if name == start:
                return path
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []


def _prices(model: ModelSettings, key: Key) -> Iterator[str]:
    for place, prices in ((*key, "price"), model.price or ()), *costs_of(model, key):
        for at, price in with_keys(prices, place):
            yield from _price(price, at)


def _price(price: PriceSettings, key: Key) -> Iterator[str]:
    tables: list[tuple[Key, Mapping[str, int]]] = [(key, price.amounts())]
    tables += [((*key, "tiers", index), tier.amounts()) for index, tier in enumerate(price.tiers)]
    tables += [((*key, "per_image", size), amounts) for size, amounts in price.per_image.items()]
    strong = price.currency in STRONG
    for place, amounts in tables:
        for name, amount in amounts.items():
            per_million = name in PER_MILLION and "per_image" not in place
            where = dotted((*place, name))
            if per_million and 0 < amount < LOWEST:
                yield f"{where}: {format_amount(amount)} per 1,000,000 looks like the price of one"
            elif per_million and strong and amount > HIGHEST:
                yield f"{where}: {format_amount(amount)} per 1,000,000 is far above all public prices"
            elif not per_million and strong and amount > HIGHEST_EACH:
                yield f"{where}: {format_amount(amount)} each looks like the price of 1,000,000"

"""What no single key of a pattern of models, or of `discover`, can say about itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gateway.config.model_patterns import PUBLIC, STAR, UPSTREAM
from gateway.config.settings import ModelPattern, Settings
from gateway.config.toml_reader import Key, TomlReader, suggestion
from gateway.config.validation import Known, check_dated_prices, is_model_name

MAX_EVERY = 7 * 86_400.0  # seconds
Problem = tuple[Key, str]


def check_patterns(settings: Settings, reader: TomlReader, *, known: Known) -> None:
    """Note everything about patterns and lists of models that contradicts something else."""
    for name in known["patterns"]:
        if name.count(STAR) != 1 or not is_model_name(name):
            reader.problem(("models", name), "a pattern has one *, and 1 to 256 printable characters")
    for name, pattern in settings.patterns.items():
        for key, problem in _problems(name, pattern, settings, known):
            reader.problem(("models", name, *key), problem)
        if pattern.price is not None:
            check_dated_prices(pattern.price.tables, reader, ("models", name, "price"))
    for name, provider in settings.providers.items():
        if provider.asks_every > MAX_EVERY:
            reader.problem(("providers", name, "discover_every"), "expected at most 7d")
        if provider.keeps_list <= provider.asks_every:
            reader.problem(("providers", name, "discover_keep"), "expected more than discover_every")


def _problems(name: str, pattern: ModelPattern, settings: Settings, known: Known) -> Iterator[Problem]:
    if not pattern.provider:
        yield ("provider",), "missing: a pattern names its provider"
        return
    if pattern.provider not in known["providers"]:
        yield ("provider",), _unknown("provider", pattern.provider, known["providers"])
    if pattern.model and pattern.model.count(STAR) != 1:
        yield ("model",), "expected one *, which stands for the same as that of the pattern"
    for kind, names in (("groups", pattern.groups), ("fallbacks", pattern.fallbacks), ("hooks", pattern.hooks)):
        known_names = known["models" if kind == "fallbacks" else kind]
        for index, one in enumerate(names):
            if one not in known_names:
                yield (kind, index), _unknown(kind.removesuffix("s"), one, known_names)
    yield from _price_problems(pattern, settings)


def _price_problems(pattern: ModelPattern, settings: Settings) -> Iterator[Problem]:
    rule, provider = pattern.price, settings.providers.get(pattern.provider)
    if rule is None:
        if not pattern.free:
            yield ("price",), 'missing: "public", "upstream", a price for all models of the pattern, or free = true'
    elif pattern.free:
        yield ("price",), "a price and free = true exclude each other"
    if rule is not None and rule.tables and pattern.max_price is not None:
        yield ("max_price",), "it bounds prices by name, and this pattern has a price of its own"
    if provider is None or provider.discover:
        return
    missing = f"needs discover = true of providers.{pattern.provider}: nothing else names its models"
    if pattern.free:
        yield ("free",), missing
    elif rule is not None and (not rule.sources or UPSTREAM in rule.sources):
        yield ("price",), missing
    elif rule is not None and PUBLIC not in rule.sources:
        yield ("price",), f'{missing}; or "public"'


def _unknown(kind: str, name: str, known: Collection[str]) -> str:
    return f"no {kind} is named {name!r}{suggestion(name, known)}"

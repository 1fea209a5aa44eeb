"""The models that follow from patterns: of a provider's list, or of the table of public prices.

`found_models(settings, name, candidates)` says of each candidate whether it is served, under which name and at which
price, or why it is not. It depends on its arguments alone, so all processes with the same settings and lists serve the
same models. Sharp edge: a model without a price is never served; only `free = true` of a pattern makes one free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct, structs

from gateway.amounts import NANO
from gateway.config.currency import PUBLIC_CURRENCY, currency_of
from gateway.config.endpoints import endpoint_of_name
from gateway.config.model_patterns import PUBLIC, STAR, UPSTREAM, USUAL_RULE, PriceRule, filled, matched
from gateway.config.price_bounds import above_maximum
from gateway.config.price_settings import PriceSettings, free_half
from gateway.config.public_prices import public_price
from gateway.config.public_tables import PublicTables
from gateway.config.settings import PATTERN_KEYS, Endpoint, ModelPattern, ModelSettings, Settings
from gateway.config.toml_reader import TomlReader
from gateway.config.validation import MAX_MODEL_NAME, price_problems

SERVED: Final = "served"
#: Why a model of a list is not served; values of a label of the metrics.
REASONS: Final = (
    "configured", "excluded", "name", "no_pattern", "other_pattern", "no_price", "free", "price", "price_changed",
    "too_expensive", "currency", "endpoint", "too_many",
)  # fmt: skip


class Candidate(Struct, frozen=True, kw_only=True):
    """A model that may be served; `problem` is the reason of one that cannot, whatever the patterns say."""

    name: str  # the upstream's
    endpoints: tuple[Endpoint, ...] = ()  # empty: unknown
    context_window: int | None = None
    max_output_tokens: int | None = None
    created: int | None = None  # Unix seconds
    price: PriceSettings | None = None  # of the provider's own list
    problem: str = ""
    detail: str = ""


class FoundModel(Struct, frozen=True, kw_only=True):
    """What becomes of a candidate."""

    upstream: str
    name: str = ""  # the public one; empty if no pattern fits
    pattern: str = ""
    state: str = SERVED  # or one of REASONS
    detail: str = ""  # for operators
    model: ModelSettings | None = None  # of one that is served


class _Unserved(Exception):
    """Why a model is not served."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail)
        self.reason = reason


class _Place(Struct, frozen=True):
    """A pattern with its name, and the one of the upstream's names."""

    name: str
    upstream: str
    pattern: ModelPattern


class _Fit(Struct, frozen=True):
    """The pattern of a model, and what its `*` stands for."""

    place: _Place
    text: str

    @property
    def name(self) -> str:
        """The public name."""
        return filled(self.place.name, self.text)


def found_models(settings: Settings, provider: str, candidates: Iterable[Candidate]) -> Iterator[FoundModel]:
    """Each candidate of a provider, in their order. Models of `settings` win over them."""
    places, taken = _places(settings, provider), _taken(settings)
    own, served = settings.providers[provider], 0
    rivals = _rivals(settings, provider)
    currency = currency_of(settings) or PUBLIC_CURRENCY
    for one in candidates:
        if not _is_included(one.name, own.discover_include, own.discover_exclude):
            yield FoundModel(upstream=one.name, state="excluded")
            continue
        fit = _best_fit(places, one.name)
        if fit is None:
            yield FoundModel(upstream=one.name, state="no_pattern")
            continue
        found = FoundModel(upstream=one.name, name=fit.name, pattern=fit.place.name)
        try:
            _check_name(fit, taken, rivals)
            if served >= own.discover_most:
                raise _Unserved("too_many", f"more than discover_most = {own.discover_most}")
            model = _model(fit, one, provider, currency, settings.tables)
        except _Unserved as unserved:
            yield structs.replace(found, state=unserved.reason, detail=str(unserved))
            continue
        taken.add(fit.name)
        served += 1
        yield structs.replace(found, model=model)


def with_public_models(settings: Settings) -> Settings:
    """The settings with the models of patterns whose providers are not asked for a list: those with a public price."""
    found: dict[str, ModelSettings] = {}
    for provider in dict.fromkeys(pattern.provider for pattern in settings.patterns.values()):
        if provider in settings.providers and not settings.providers[provider].discover:
            candidates = map(_candidate, sorted(_public_candidates(settings, provider)))
            found |= {one.name: one.model for one in found_models(settings, provider, candidates) if one.model}
    return with_models(settings, found)


def with_models(settings: Settings, found: Mapping[str, ModelSettings]) -> Settings:
    """The settings with models that the file does not name."""
    if not found:
        return settings
    models = {**settings.models, **{name: model for name, model in found.items() if name not in settings.models}}
    added = models.keys() - settings.models.keys()
    return structs.replace(settings, models=models, from_patterns=settings.from_patterns | added)


# Names ---------------------------------------------------------------------------------------------------------------


def upstream_pattern(name: str, pattern: ModelPattern) -> str:
    """The pattern of the upstream's names: `model`, or else that of the public names without `PROVIDER/` before it."""
    return pattern.model or name.removeprefix(f"{pattern.provider}/")


def _places(settings: Settings, provider: str) -> list[_Place]:
    """The patterns of a provider, the most exact first; without any, that of all its models."""
    own = {name: pattern for name, pattern in settings.patterns.items() if pattern.provider == provider}
    if not own and settings.providers[provider].discover:
        own = {f"{provider}/{STAR}": ModelPattern(provider=provider, price=USUAL_RULE)}
    places = [_Place(name, upstream_pattern(name, pattern), pattern) for name, pattern in own.items()]
    return sorted(places, key=lambda place: (-len(place.upstream), -len(place.name), place.name))


def _best_fit(places: Iterable[_Place], upstream: str) -> _Fit | None:
    """The first pattern that fits an upstream's name."""
    for place in places:
        text = matched(place.upstream, upstream)
        if text is not None:
            return _Fit(place, text)
    return None


def _taken(settings: Settings) -> set[str]:
    """The names that models have already, with their aliases."""
    aliases = (alias for model in settings.models.values() for alias in model.aliases)
    return {*settings.models, *aliases}


def _rivals(settings: Settings, provider: str) -> list[str]:
    """The patterns of other providers."""
    return [name for name, pattern in settings.patterns.items() if pattern.provider != provider]


def _check_name(fit: _Fit, taken: set[str], rivals: Iterable[str]) -> None:
    name, own = fit.name, fit.place.name
    if name in taken:
        raise _Unserved("configured", "another model has this name")
    if len(name) > MAX_MODEL_NAME:
        raise _Unserved("name", f"the name is over {MAX_MODEL_NAME} characters")
    for other in rivals:
        if matched(other, name) is not None and (len(other), other) > (len(own), own):
            raise _Unserved("other_pattern", f"{other} fits this name better")


def _is_included(name: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    if include and not any(fnmatchcase(name, glob) for glob in include):
        return False
    return not any(fnmatchcase(name, glob) for glob in exclude)


def _public_candidates(settings: Settings, provider: str) -> set[str]:
    """The upstream's names of the models with a public price that fit a pattern of a provider.

    Public names are those of models, as `openai/gpt-5` of the pattern `openai/*`, or else those of an upstream that
    serves models of several vendors.
    """
    found, names = set[str](), list(settings.tables.read())
    for place in _places(settings, provider):
        texts = [matched(place.name, name) for name in names]
        own = {filled(place.upstream, text) for text in texts if text is not None}
        found |= own or {name for name in names if matched(place.upstream, name) is not None}
    return found


def _candidate(name: str) -> Candidate:
    return Candidate(name=name)


# Prices --------------------------------------------------------------------------------------------------------------


def _model(fit: _Fit, one: Candidate, provider: str, currency: str, tables: PublicTables) -> ModelSettings:
    """The settings of a model; _Unserved if it has no price."""
    pattern = fit.place.pattern
    endpoints = pattern.endpoints or one.endpoints or (endpoint_of_name(one.name),)
    if one.price is not None and (half := free_half(one.price.amounts(), endpoints)):
        one = structs.replace(one, price=None, problem="price", detail=f"the list's price: {half}")
    listed = one.price if currency == PUBLIC_CURRENCY else None
    price = None if pattern.free else _price(fit, one, currency, tables)
    keys = {key: getattr(pattern, key) for key in PATTERN_KEYS}
    keys["context_window"] = pattern.context_window or one.context_window
    keys["max_output_tokens"] = pattern.max_output_tokens or one.max_output_tokens
    model = ModelSettings(
        **keys,
        provider=provider,
        model=one.name,
        endpoints=endpoints,
        created=one.created,
        price=price,
        cost=(listed,) if listed is not None else None,
    )
    if problems := price_problems(model):
        raise _Unserved("endpoint" if "would cost nothing" in problems[0] else "price", problems[0])
    return model


def _price(fit: _Fit, one: Candidate, currency: str, tables: PublicTables) -> tuple[PriceSettings, ...]:
    pattern = fit.place.pattern
    rule = pattern.price or PriceRule()
    if rule.tables:
        return rule.tables
    if currency != PUBLIC_CURRENCY:
        raise _Unserved("currency", f"its price is in {PUBLIC_CURRENCY}, those of the configuration in {currency}")
    for source in rule.sources:
        prices = _of_source(source, fit, one, tables)
        if prices:
            prices = tuple(_times(price, pattern.markup) for price in prices)
            if pattern.max_price is not None and (above := above_maximum(prices, pattern.max_price)):
                raise _Unserved("too_expensive", above)
            return prices
    if UPSTREAM in rule.sources and one.problem:
        raise _Unserved(one.problem, one.detail)
    raise _Unserved("no_price", f"no price by {', '.join(rule.sources)}")


def _of_source(source: str, fit: _Fit, one: Candidate, tables: PublicTables) -> tuple[PriceSettings, ...] | None:
    if source == UPSTREAM:
        return (one.price,) if one.price is not None and not one.problem else None
    names = (fit.name, one.name) if source == PUBLIC else (filled(source, fit.text),)
    prices = tables.read()
    public = next((name for name in names if name in prices), None)
    return _read_public(public, tables) if public is not None else None


def _read_public(name: str, tables: PublicTables) -> tuple[PriceSettings, ...]:
    reader = TomlReader("public prices")
    prices = [reader.struct(PriceSettings, table, ("price",)) for table in public_price(name, tables)]
    return tuple(price for price in prices if price is not None)


def _times(price: PriceSettings, factor: int) -> PriceSettings:
    """The price times a factor in 1e-9; each amount is rounded up."""
    if factor == NANO:
        return price
    tiers = tuple(structs.replace(tier, **_raised(tier.amounts(), factor)) for tier in price.tiers)
    images = {size: _raised(amounts, factor) for size, amounts in price.per_image.items()}
    return structs.replace(price, tiers=tiers, per_image=images, **_raised(price.amounts(), factor))


def _raised(amounts: Mapping[str, int], factor: int) -> dict[str, int]:
    return {name: -(-amount * factor // NANO) for name, amount in amounts.items()}

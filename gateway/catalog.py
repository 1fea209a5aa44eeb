"""What is served: models with their targets, groups and prices, as one immutable catalogue built from the settings.

`Catalog.build(settings)` makes it; a reload builds a new one and swaps it whole, so a running call keeps the model,
the price and the limits it was admitted with. Sharp edge: names and aliases are one namespace, and aliases resolve
here only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from gateway.amounts import NANO
from gateway.billing.image_tokens import MediaRules, media_rules
from gateway.billing.price import Price, price_on
from gateway.billing.price_form import later_price_forms
from gateway.billing.price_terms import OwnPrice, PriceTerms, UnreadablePrice
from gateway.config.currency import currency_of
from gateway.config.settings import ModelSettings, PriceSettings, Settings
from gateway.http_client.timeouts import Timeouts
from gateway.ledger import GroupLimits
from gateway.plugins.provider import Target

PRICED = 20_000  # models with the prices of accounts that a worker keeps; some 40 MB when full


class WeightedTarget(Struct, frozen=True):
    """One place a model is served from, and its share of the calls."""

    target: Target
    weight: int = 1
    costs: tuple[Price, ...] = ()  # what the operator pays, in the order of their dates


class ModelRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model as `GET /v1/models` shows it."""

    id: str
    object: str
    created: int
    owned_by: str
    shutdown_date: str | None
    context_window: int | None = None
    max_output_tokens: int | None = None
    endpoints: tuple[str, ...] = ()
    later_prices: list[dict[str, Any]] = []


class Model(Struct, frozen=True, kw_only=True):
    """One public model."""

    name: str
    targets: tuple[WeightedTarget, ...]
    fallbacks: tuple[str, ...]
    groups: frozenset[str]
    prices: tuple[Price, ...]  # in the order of their dates
    record: ModelRecord
    endpoints: frozenset[str]
    unsupported_params: frozenset[str]
    context_window: int | None
    max_output_tokens: int | None
    default_reserve_output: int
    token_factor: float
    media_rules: MediaRules  # of all upstreams that may serve it, its fallbacks among them
    disconnect: str
    hold: str  # "strict" or "clamp"
    reasoning: bool | None = None  # whether it may reason without showing it; None: decided by target
    strategy: str = "weighted"  # or "in_order", "least_latency", "least_busy"
    affinity: str = "session"  # or "none": calls of a session are ordered like others
    retries: int = 2  # attempts beyond the first
    first_token_timeout: float = 0.0  # seconds to the first content of a stream; 0: none
    patience: float = 3.0  # seconds that a rate limit may ask for before a fallback is tried
    hedge_after: float = 0.0  # seconds; 0: never
    continue_cut: str = "off"  # or "proved", "any"
    prefill: str = "auto"  # or how its targets are asked to go on with a begun answer
    batch_factor: int = NANO  # of the price, for lines of batches
    vendor_tool_uses: int = 10  # of tools that an upstream runs, where the caller sets no limit
    listed: tuple[PriceSettings | None, ...] = (None,)  # the settings of `prices`
    hooks: tuple[str, ...] = ()  # of [hooks], in the order in which they run
    base: Model | None = None  # the model at its list price, of one with the price of an account

    @property
    def price(self) -> Price:
        """The price that holds now; a call reads it once and keeps it, so that no change of date or file touches it."""
        prices = self.prices
        return prices[0] if len(prices) == 1 else price_on(prices, time.time())

    @property
    def has_later_price(self) -> bool:
        """Whether a price is announced that does not hold yet."""
        return len(self.prices) > 1 and self.prices[-1].effective_from > time.time()

    def reserve_output(self, requested: int | None) -> int:
        """Output tokens to hold money for, given what the caller asked; without a limit, what can be extended later."""
        if requested is not None:
            return min(requested, self.max_output_tokens) if self.max_output_tokens else requested
        if self.max_output_tokens:
            return min(self.default_reserve_output, self.max_output_tokens)
        return self.default_reserve_output


class Catalog:
    """Every model by name and alias, and every group's limits; never changed once built."""

    def __init__(
        self,
        models: Mapping[str, Model],
        aliases: Mapping[str, str],
        *,
        groups: Mapping[str, GroupLimits],
        currency: str | None,
    ) -> None:
        self.models = models
        self.aliases = aliases
        self.groups = groups
        self._priced: dict[tuple[str, OwnPrice | UnreadablePrice], Model] = {}
        #: Every record with its model, aliases as records of their own, sorted by id.
        self.records = _records(models, aliases)
        self.by_id = {record.id: (record, model) for record, model in self.records}
        self.currency = currency  # of the prices; None if they name none

    @classmethod
    def build(cls, settings: Settings, previous: Previous | None = None) -> Catalog:
        """The catalogue those settings describe; they have been checked already.

        `previous`: the previous settings and catalogue. Models that have not changed are taken from there: with 5,000
        models that takes 10 ms instead of 100. It may be called in a thread.
        """
        now = int(time.time())
        aliases = {alias: name for name, model in settings.models.items() for alias in model.aliases}
        kept = _unchanged(settings, aliases, previous) if previous is not None else {}
        models = {
            name: kept.get(name) or _model(name, model, now, settings, aliases)
            for name, model in settings.models.items()
        }
        groups = {name: GroupLimits(**structs.asdict(group)) for name, group in settings.groups.items()}
        return cls(models, aliases, groups=groups, currency=currency_of(settings) or None)

    def find(self, name: str) -> Model | None:
        """The model of that name or alias."""
        model = self.models.get(name)
        if model is None:
            alias = self.aliases.get(name)
            return self.models[alias] if alias is not None else None
        return model

    def priced(self, model: Model, terms: PriceTerms, *, in_batch: bool = False) -> Model:
        """The model with the prices that an account has under these terms; PriceUnreadable if they are unreadable.

        `in_batch`: those of lines of batches.
        """
        own = terms.of(model.name)
        if in_batch and model.batch_factor != NANO and not isinstance(own, UnreadablePrice):
            own = own or OwnPrice()
            own = structs.replace(own, factor=own.factor * model.batch_factor // NANO)
        if own is None:
            return model
        found = self._priced.get((model.name, own))
        if found is None or found.base is not model:
            found = structs.replace(model, prices=tuple(map(own.of, model.listed)), base=model)
            if len(self._priced) >= PRICED:
                del self._priced[next(iter(self._priced))]
            self._priced[model.name, own] = found
        return found

    def later_prices(self, model: Model, terms: PriceTerms) -> list[dict[str, Any]]:
        """The announced prices of a model under these terms, in the form of the admin API; none if unreadable."""
        own = terms.of(model.name)
        if isinstance(own, UnreadablePrice):
            return []
        prices = self.priced(model, terms).prices
        settings = [own.replaced(listed) if own is not None else listed for listed in model.listed]
        pairs = [(price, one) for price, one in zip(prices, settings, strict=True) if one is not None]
        return later_price_forms(pairs, price_on(prices, time.time()), own.factor if own is not None else NANO)

    def prices(self) -> list[Price]:
        """Every price of every model, future ones included."""
        return [price for model in self.models.values() for price in model.prices]


#: The settings and the catalogue that were made of them.
Previous = tuple[Settings, Catalog]


def _records(models: Mapping[str, Model], aliases: Mapping[str, str]) -> list[tuple[ModelRecord, Model]]:
    pairs = [(model.record, model) for model in models.values()]
    pairs += [(structs.replace(models[name].record, id=alias), models[name]) for alias, name in aliases.items()]
    return sorted(pairs, key=lambda pair: pair[0].id)


def _unchanged(settings: Settings, aliases: Mapping[str, str], previous: Previous) -> dict[str, Model]:
    """The previous models whose settings are the same, also those of their fallbacks, which have the same names."""
    before, catalog = previous
    same = {name for name, model in settings.models.items() if before.models.get(name) == model}
    return {
        name: catalog.models[name]
        for name in same
        if all(
            aliases.get(other, other) == catalog.aliases.get(other, other) and aliases.get(other, other) in same
            for other in settings.models[name].fallbacks
        )
    }


def _model(name: str, settings: ModelSettings, now: int, document: Settings, aliases: Mapping[str, str]) -> Model:
    endpoints = tuple(settings.endpoints)
    return Model(
        name=name,
        targets=_targets(name, settings),
        fallbacks=tuple(settings.fallbacks),
        groups=frozenset(settings.groups),
        prices=tuple(map(Price.of, settings.price or (None,))),
        listed=settings.price or (None,),
        record=ModelRecord(
            id=name,
            object="model",
            created=int(settings.created if settings.created is not None else now),
            owned_by=settings.owned_by,
            shutdown_date=str(settings.shutdown_date) if settings.shutdown_date else None,
            context_window=settings.context_window,
            max_output_tokens=settings.max_output_tokens,
            endpoints=endpoints,
        ),
        endpoints=frozenset(endpoints),
        unsupported_params=frozenset(settings.unsupported_params),
        context_window=settings.context_window,
        max_output_tokens=settings.max_output_tokens,
        default_reserve_output=settings.default_reserve_output,
        token_factor=settings.token_factor,
        batch_factor=settings.batch_factor,
        vendor_tool_uses=settings.vendor_tool_uses,
        media_rules=media_rules(_billed_like(name, settings, document, aliases)),
        disconnect=settings.disconnect,
        hold=settings.hold,
        reasoning=None if settings.reasoning == "auto" else settings.reasoning,
        strategy=settings.strategy,
        affinity=settings.affinity,
        retries=settings.retries,
        first_token_timeout=settings.first_token_timeout,
        patience=settings.patience,
        hedge_after=settings.hedge_after,
        continue_cut=settings.continues,
        prefill=settings.prefill,
        hooks=settings.hooks,
    )


def _billed_like(name: str, settings: ModelSettings, document: Settings, aliases: Mapping[str, str]) -> Iterator[str]:
    """Names of the upstream models whose rules for images apply to a model: its own, and those of its fallbacks."""
    for served in (name, *settings.fallbacks):
        served = aliases.get(served, served)
        model = document.models[served]
        if model.images_like:
            yield model.images_like
        else:
            yield from (item.target.model for item in _targets(served, model))


def _targets(name: str, settings: ModelSettings) -> tuple[WeightedTarget, ...]:
    timeouts = Timeouts(
        connect=settings.connect_timeout,
        first_byte=settings.first_byte_timeout,
        idle=settings.idle_timeout,
        total=settings.total_timeout,
    )
    return tuple(
        WeightedTarget(
            Target(
                provider=target.provider,
                model=target.model or name,
                public_model=name,
                timeouts=timeouts,
                max_tokens_field=settings.max_tokens_field,
            ),
            target.weight,
            tuple(map(Price.of, target.cost or ())),
        )
        for target in settings.all_targets
    )

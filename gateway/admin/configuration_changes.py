"""What a reload changes of prices and limits, as the audit trail keeps it: only what differs, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from gateway.admin.actor import Actor
from gateway.admin.audit_event import AuditEvent, new_event
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import format_amount
from gateway.billing.price_form import price_form
from gateway.config.settings import GroupSettings, ModelPattern, ModelSettings, PriceRule, Settings
from gateway.store import Store

OBJECT = "configuration:file"
Form = dict[str, Any]


def changes(before: Settings, after: Settings) -> tuple[Form, Form]:
    """The prices of models and the limits of groups that differ; a model or group that is missing is None."""
    models = _differing(_prices(before), _prices(after))
    groups = _differing(_groups(before), _groups(after))
    return _form(models[0], groups[0]), _form(models[1], groups[1])


def change_event(before: Settings, after: Settings) -> AuditEvent | None:
    """The event of a reload that has happened; None if it changes neither prices nor limits."""
    old, new = changes(before, after)
    if not old and not new:
        return None
    actor = Actor(kind="system", id="reload", scopes=frozenset())
    return new_event(actor, "configuration.change", OBJECT, before=old, after=new)


async def tell_list_prices(
    store: Store, provider: str, changed: int, before: Mapping[str, object], after: Mapping[str, object]
) -> None:
    """Add the event of prices that the list of a provider changes, before the list is stored. GatewayError.

    It names some if they are many.
    """
    actor = Actor(kind="system", id="discovery", scopes=frozenset())
    old, new = {"prices": dict(before)}, {"prices": dict(after), "changed": changed}
    await AuditOutbox(store).put(
        new_event(actor, "discovery.prices", f"provider:{provider}", before=old, after=new),
    )


def _form(models: Form, groups: Form) -> Form:
    return {name: found for name, found in (("prices", models), ("limits", groups)) if found}


def _differing(before: Form, after: Form) -> tuple[Form, Form]:
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}


def _prices(settings: Settings) -> Form:
    """Those of the models and patterns that the file names."""
    models = {name: _price(model) for name, model in settings.configured.models.items()}
    return models | {name: _rule(pattern) for name, pattern in settings.patterns.items()}


def _rule(pattern: ModelPattern) -> Form:
    """The rule of a pattern for prices, with its factor and its bounds."""
    rule, bounds = pattern.price or PriceRule(), pattern.max_price
    return {
        "prices": [price_form(price) for price in rule.tables],
        "sources": list(rule.sources),
        "markup": format_amount(pattern.markup),
        "max_price": {name: format_amount(most) for name, most in bounds.bounds().items()} if bounds else {},
    }


def _price(model: ModelSettings) -> list[Form]:
    """The prices of a model in the order of their dates; a free model has none."""
    return [price_form(price) for price in model.price or ()]


def _groups(settings: Settings) -> Form:
    return {name: _limits(group) for name, group in settings.groups.items()}


def _limits(group: GroupSettings) -> Form:
    return {**structs.asdict(group), "price_factor": format_amount(group.price_factor)}

"""Whether a call of a key would be admitted now: what `gateway explain` and the admin API answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from gateway.accounts.admission_check import Explanation, ModelHook, explain
from gateway.admin.model_names import known_models, models_by_name
from gateway.amounts import format_amount
from gateway.billing.price_terms import PriceTerms
from gateway.billing.quote import Quote
from gateway.catalog import Catalog
from gateway.config.settings import Settings
from gateway.errors import InvalidValue
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.sessions import PLAIN
from gateway.ledger import Ledger
from gateway.store.links import Links


async def check_call(
    links: Links,
    settings: Settings,
    key_id: str,
    model: str,
    size: RequestSize,
    *,
    endpoint: str | None = None,
    session: str = "",
    endpoint_named: Callable[[str], Endpoint[Any]],
) -> Explanation:
    """Check a call of this size; without an endpoint, to the first one that the model serves.

    `session` is the id of a session, as lines have it; empty for a call without one.
    Nothing is called and nothing is written. NotFound: no such key. InvalidValue: no such model, or no such id.
    """
    if session and not PLAIN.fullmatch(session):
        raise InvalidValue("no id of a session: it has 1 to 64 letters, digits and . _ : / + = -")
    (name,) = known_models(settings, [model])
    catalog = Catalog.build(with_fallbacks(settings, name))
    found = catalog.models[name]
    asked = endpoint_named(endpoint or found.record.endpoints[0])

    def quote(terms: PriceTerms) -> Quote:
        return structs.replace(asked.quote_size(catalog.priced(found, terms), size), session=session)

    explanation = await explain(
        links,
        Ledger(links, catalog.groups),
        key_id=key_id,
        quote=quote,
        lowerable=asked.lowerable,
        clamp=asked.clamp,
        endpoint=asked.name,
    )
    return structs.replace(explanation, hooks=tuple(_hook(one, settings) for one in found.hooks))


def _hook(name: str, settings: Settings) -> ModelHook:
    hook = settings.hooks[name]
    return ModelHook(
        name, hook.plugin, hook.timeout, hook.on_failure, hook.concurrency, format_amount(hook.price_factor)
    )


def with_fallbacks(settings: Settings, name: str) -> Settings:
    """The settings with one model and its fallbacks only: a catalogue of 5,000 models takes 0.1 s of processor time."""
    names, found, waiting = models_by_name(settings), set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += [names[fallback] for fallback in settings.models[one].fallbacks]
    return structs.replace(settings, models={one: settings.models[one] for one in sorted(found)})

"""Whether a call of a key would be admitted now: what `gateway explain` and the admin API answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.accounts.accounts import Refused
from gateway.accounts.admission_check import Explanation, explain
from gateway.admin.model_names import known_models
from gateway.billing.price_terms import PriceTerms
from gateway.billing.quote import Quote
from gateway.catalog import Catalog
from gateway.config.settings import Settings
from gateway.errors import NotFound
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.ledger import Ledger
from gateway.ledger.scripts import Links


async def check_call(
    links: Links,
    settings: Settings,
    key_id: str,
    model: str,
    size: RequestSize,
    *,
    endpoint: str | None = None,
    endpoint_named: Callable[[str], Endpoint[Any]],
) -> Explanation:
    """Check a call of this size; without an endpoint, to the first one that the model serves.

    Nothing is called and nothing is written. NotFound: no such key. InvalidValue: no such model.
    """
    (name,) = known_models(settings, [model])
    catalog = Catalog.build(settings)
    found = catalog.models[name]
    asked = endpoint_named(endpoint or found.record.endpoints[0])

    def quote(terms: PriceTerms) -> Quote:
        return asked.quote_size(catalog.priced(found, terms), size)

    try:
        return await explain(
            links,
            Ledger(links, catalog.groups),
            key_id=key_id,
            quote=quote,
            lowerable=asked.lowerable,
            clamp=asked.clamp,
            endpoint=asked.name,
        )
    except Refused as error:
        raise NotFound(str(error)) from None

"""The quote of a call: its model and price, the request as each candidate receives it, and the worst cost.

The pipeline quotes a call once. Its admission quotes it again when the prices of its account have changed, or when a
smaller hold lowers its output limit.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gateway import errors
from gateway.billing.price_terms import LIST_PRICES, PriceTerms
from gateway.billing.quote import Quote
from gateway.catalog import Model
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.inference.tags import read_tags
from gateway.routing.request_adaptation import Adapted, adapt


def quote_call(call: Call, endpoint: Endpoint[Any], services: Services) -> None:
    """Find the model of a decoded request, and quote the call; raises BadRequest or NoHealthyUpstream."""
    model = call.model = _find_model(call.request.model, services)
    terms = services.ledger.terms.of(call.key.account).terms
    if terms is not LIST_PRICES:
        model = call.model = services.catalog.priced(model, terms)
    request = call.request = endpoint.for_model(call.request, model)
    quote_at(call, endpoint, terms, services)
    call.stream = endpoint.wants_stream(request)


def quote_at(call: Call, endpoint: Endpoint[Any], terms: PriceTerms, services: Services) -> None:
    """Quote the call at the price of its model."""
    request, model = call.request, call.model
    adapted = call.adapted = _adapt(endpoint, request, model, services)
    quote = endpoint.quote(request, model, call.body_size, adapted)
    accept_quote(call, endpoint, quote if terms is LIST_PRICES else structs.replace(quote, terms=terms))


def accept_quote(call: Call, endpoint: Endpoint[Any], quote: Quote) -> None:
    """Use `quote` for the call; its output limit is sent to upstreams."""
    call.quote, call.service_tier = quote, quote.service_tier
    limit = quote.output_limit
    if limit is not None:
        call.adapted = [endpoint.limit_output(one, limit) for one in call.adapted]


def add_tags(call: Call, header: str | None, services: Services) -> None:
    """Add the caller's tags to the quote; `header` is the text of their header."""
    metadata = getattr(call.request, "metadata", None)
    if header is not None or metadata:
        call.quote = structs.replace(call.quote, tags=read_tags(services.settings.server.tags, header, metadata))


def _find_model(name: str, services: Services) -> Model:
    model = services.catalog.find(name)
    if model is not None:
        return model
    if services.settings.server.unknown_model_status == 404:
        raise errors.ModelNotFound(param="model")
    raise errors.ModelNotPermitted()


def _adapt(endpoint: Endpoint[Any], request: Any, model: Model, services: Services) -> list[Adapted[Any]]:
    """The candidates with the request as each receives it; BadRequest when none supports it."""
    if endpoint.name not in model.endpoints:
        raise errors.UnsupportedParameter(f"The model '{model.name}' does not serve this endpoint", param="model")
    candidates = services.router.resolve(model, endpoint.capability)
    if model.fallbacks:  # a fallback may be a model of another kind, on a provider with both capabilities
        candidates = [one for one in candidates if endpoint.name in one.model.endpoints]
        if not candidates:
            raise errors.NoHealthyUpstream()
    return adapt(
        request,
        candidates,
        endpoint.capability,
        unknown_params=services.settings.server.unknown_params,
        check=endpoint.check_candidate,
    )

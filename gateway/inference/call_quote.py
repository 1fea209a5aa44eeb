"""The quote of a call: its model and price, the request as each candidate receives it, and the worst cost.

The pipeline quotes a call once. Its admission quotes it again when the prices of its account have changed, or when a
smaller hold lowers its output limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from gateway import errors
from gateway.billing.price_terms import LIST_PRICES, PriceTerms
from gateway.billing.quote import Quote
from gateway.catalog import Model
from gateway.inference.call_stages import CallRequest, QuotedCall
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.inference.tags import read_tags
from gateway.routing.request_adaptation import Adapted, adapt

#: The terms of a quote whose account has an unreadable price of the model. They are those of no account.
UNREADABLE = PriceTerms(epoch="?", listed=None)


def quote_call(
    asked: CallRequest, endpoint: Endpoint[Any], services: Services, adapted: Sequence[Adapted[Any]] | None = None
) -> QuotedCall:
    """Find the model of a decoded request, and quote the call; raises BadRequest or NoHealthyUpstream.

    `adapted`: the request as its candidates have it already, where no candidate is to be found.

    A price that this worker cannot read is not refused here, because it may be replaced meanwhile: the store admits no
    call with this quote, and `hold_cost` reads the price again.
    """
    model = asked.model = find_model(asked.content.model, services)
    asked.session = services.sessions.of(asked.session, asked.content, asked.key.account, model.name)
    terms = services.ledger.terms.of(asked.key.account).terms
    if terms is not LIST_PRICES or asked.batch is not None:
        model, terms = _at_own_price(model, terms, services, in_batch=asked.batch is not None)
    asked.content = endpoint.for_model(asked.content, model)
    return quote_at(asked, model, endpoint, terms, services, adapted)


def quote_replaced(asked: CallRequest, quoted: QuotedCall, endpoint: Endpoint[Any], services: Services) -> QuotedCall:
    """The quote of the same call with another request, which a hook has returned."""
    asked.content = endpoint.for_model(asked.content, quoted.model)
    return quote_at(asked, quoted.model, endpoint, quoted.quote.terms, services)


def _at_own_price(model: Model, terms: PriceTerms, services: Services, *, in_batch: bool) -> tuple[Model, PriceTerms]:
    try:
        return services.catalog.priced(model, terms, in_batch=in_batch), terms
    except errors.PriceUnreadable:
        return model, UNREADABLE


def quote_at(
    asked: CallRequest,
    model: Model,
    endpoint: Endpoint[Any],
    terms: PriceTerms,
    services: Services,
    adapted: Sequence[Adapted[Any]] | None = None,
) -> QuotedCall:
    """The quote at the price of the model."""
    if adapted is None:
        adapted = _adapt(endpoint, asked, model, services)
    quote = endpoint.quote(asked.content, model, asked.body_size, adapted)
    if terms is not LIST_PRICES:
        quote = structs.replace(quote, terms=terms)
    session = asked.session if asked.batch is None else asked.batch.id
    if session:
        quote = structs.replace(quote, session=session)
    return with_quote(model, quote, adapted, endpoint)


def with_quote(model: Model, quote: Quote, adapted: Sequence[Adapted[Any]], endpoint: Endpoint[Any]) -> QuotedCall:
    """A call with this quote, whose output limit is sent to upstreams."""
    limit = quote.output_limit
    if limit is not None:
        adapted = [endpoint.limit_output(one, limit) for one in adapted]
    return QuotedCall(model, quote, adapted)


def with_tags(quoted: QuotedCall, asked: CallRequest, header: str | None, services: Services) -> QuotedCall:
    """The call with the caller's tags; `header` is the text of their header."""
    metadata = getattr(asked.content, "metadata", None)
    if header is None and not metadata:
        return quoted
    tags = read_tags(services.settings.server.tags, header, metadata)
    return structs.replace(quoted, quote=structs.replace(quoted.quote, tags=tags))


def find_model(name: str, services: Services) -> Model:
    """The model of that name or alias; ModelNotPermitted, or ModelNotFound if the settings say so."""
    model = services.catalog.find(name)
    if model is not None:
        return model
    if services.settings.server.limits.unknown_model_status == 404:
        raise errors.ModelNotFound(param="model")
    raise errors.ModelNotPermitted()


def _adapt(endpoint: Endpoint[Any], asked: CallRequest, model: Model, services: Services) -> list[Adapted[Any]]:
    """The candidates with the request as each receives it; BadRequest when none supports it."""
    permission = endpoint.permission or endpoint.name
    if permission not in model.endpoints:
        raise errors.UnsupportedParameter(f"The model '{model.name}' does not serve this endpoint", param="model")
    key = ""
    if asked.session and model.affinity == "session":
        key = services.sessions.upstream_key(asked.key.account, asked.session)
    candidates = services.router.resolve(model, endpoint.capability, key)
    if model.fallbacks:  # a fallback may be a model of another kind, on a provider with both capabilities
        candidates = [one for one in candidates if permission in one.model.endpoints]
        if not candidates:
            raise errors.NoHealthyUpstream()
    return adapt(
        asked.content,
        candidates,
        endpoint.capability,
        unknown_params=services.settings.server.unknown_params,
        check=endpoint.check_candidate,
        cache_key=key,
    )

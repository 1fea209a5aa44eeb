"""The hold of a call: key, permission, limits and balance are checked, and its worst cost is held, in one atomic step.

The store may answer that the prices of the account have changed, that the key is restricted, or that the money covers
less than the quote. Then the call is quoted again, its restrictions are checked, or its output limit is lowered, and it
is admitted again. Sharp edge: after an error nothing is held.
"""

from __future__ import annotations

import time
from typing import Any

from msgspec import structs

from gateway import errors
from gateway.accounts.key_scopes import check_scopes
from gateway.billing.price_terms import UnreadablePrice
from gateway.inference.call import Call
from gateway.inference.call_quote import quote_at, with_quote
from gateway.inference.call_stages import CallRequest, QuotedCall
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.ledger import Hold
from gateway.ledger.admission import MAX_TRIES, Repriced, terms_keep_changing

#: Errors of an admission that may be tried again with something changed.
ADMITTED_AGAIN = (Repriced, errors.KeyRestricted, errors.QuotaExhausted, errors.CostLimitExceeded)


async def hold_cost(asked: CallRequest, quoted: QuotedCall, endpoint: Endpoint[Any], services: Services) -> Call:
    """Hold the worst cost, and begin to renew the lease of the call; raises the error of a refusal."""
    began = time.monotonic()
    try:
        if quoted.model.base is not None:  # an own price needs its table before its first hold
            await services.price_tables.ensure(quoted.quote.price)
        if asked.batch is not None:
            asked.batch.reserve(quoted.quote.hold)
        try:
            hold = await services.ledger.admit(asked.request_id, asked.key, quoted.quote)
        except ADMITTED_AGAIN as error:
            hold, quoted = await _admit_again(asked, quoted, endpoint, services, error)
    except BaseException:
        if asked.claim is not None:  # a refused call may be retried with the same key
            asked.claim.close(asked.reply.headers, charged=False)
        raise
    call = asked.call = _admitted(asked, quoted, endpoint, hold)
    sending = call.sending
    sending.account, sending.trace = asked.key.account, asked.trace
    sending.admitted, sending.quote = hold, call.quote
    if call.quote.output_limit is not None:
        call.reply.headers["x-gateway-max-tokens"] = str(call.quote.output_limit)
    services.metrics.store_round_trip(time.monotonic() - began)
    services.metrics.begun(endpoint.name)
    if hold.rates is not None:
        hold.rates.write(call.reply.headers)
    services.active_calls.add(call)
    services.clock.begin(call)
    return call


def _admitted(asked: CallRequest, quoted: QuotedCall, endpoint: Endpoint[Any], hold: Hold) -> Call:
    return Call(  # by position: by name it takes 1 µs more
        asked.request_id,
        endpoint,
        asked.key,
        asked.reply,
        quoted.model,
        quoted.quote,
        hold,
        asked.content,
        asked.body_size,
        quoted.adapted,
        endpoint.wants_stream(asked.content),
        quoted.quote.service_tier,
        asked.client_gone,
        asked.claim,
        asked.task,
        asked.caller,
    )


def check_call_scopes(asked: CallRequest, scopes: str) -> None:
    """Check the scopes of the key, and note that they were checked; KeyRestricted if they do not permit the call."""
    caller = asked.caller
    permission = asked.endpoint.permission or asked.endpoint.name
    check_scopes(scopes, caller.client_address() if caller is not None else "", permission)
    asked.key = structs.replace(asked.key, scopes=scopes)


async def check_permission(asked: CallRequest, services: Services) -> None:
    """Check key and permission for a call that is not admitted; their error replaces the one of the request."""
    model = asked.model
    view = await services.auth.confirm(asked.key, [model.name] if model is not None else ())
    if view.scopes:
        check_call_scopes(asked, view.scopes)
    if model is not None and not view.permits(model.name, model.groups):
        raise errors.ModelNotPermitted()


async def _admit_again(
    asked: CallRequest, quoted: QuotedCall, endpoint: Endpoint[Any], services: Services, error: Exception
) -> tuple[Hold, QuotedCall]:
    """Admit a call after an error that says what to change; raises an error that nothing can be done about."""
    lowered = restricted = False
    try:
        for _ in range(MAX_TRIES):
            if isinstance(error, Repriced):
                quoted = await _reprice(asked, quoted, endpoint, services, error)
            elif isinstance(error, errors.KeyRestricted):
                if restricted:
                    raise error
                restricted = True
                check_call_scopes(asked, error.scopes)
            elif lowered or not quoted.quote.share:
                raise error
            else:
                lowered = True
            try:
                if lowered:
                    return await _admit_lowered(asked, quoted, endpoint, services)
                return await services.ledger.admit(asked.request_id, asked.key, quoted.quote), quoted
            except ADMITTED_AGAIN as again:
                error = again
        raise terms_keep_changing()
    finally:
        del error  # its traceback refers to this frame


async def _reprice(
    asked: CallRequest, quoted: QuotedCall, endpoint: Endpoint[Any], services: Services, error: Repriced
) -> QuotedCall:
    """The call at the prices that its account has now; PriceUnreadable if that of its model is not."""
    account, tags = asked.key.account, quoted.quote.tags
    if error.unknown:
        await services.ledger.terms.read(account)
    terms = services.ledger.terms.of(account).terms
    price = terms.of(quoted.model.name)
    if isinstance(price, UnreadablePrice):
        await check_permission(asked, services)
        services.unreadable_prices.refused(account, quoted.model.name, price)
    model = services.catalog.priced(quoted.model.base or quoted.model, terms, in_batch=asked.batch is not None)
    quoted = quote_at(asked, model, endpoint, terms, services)
    if tags:
        quoted = structs.replace(quoted, quote=structs.replace(quoted.quote, tags=tags))
    if model.base is not None:
        await services.price_tables.ensure(quoted.quote.price)
    if asked.batch is not None:
        asked.batch.reserve(quoted.quote.hold)
    return quoted


async def _admit_lowered(
    asked: CallRequest, quoted: QuotedCall, endpoint: Endpoint[Any], services: Services
) -> tuple[Hold, QuotedCall]:
    """Admit a call with a smaller hold, and lower its output limit."""
    hold = await services.ledger.admit(asked.request_id, asked.key, endpoint.lowerable(quoted.quote))
    if hold.amount < quoted.quote.hold:
        try:
            quoted = _lowered(quoted, endpoint, hold)
        except BaseException:
            services.ledger.book(hold, None)
            raise
    return hold, quoted


def _lowered(quoted: QuotedCall, endpoint: Endpoint[Any], hold: Hold) -> QuotedCall:
    """The call with the output limit that the smaller hold covers."""
    smaller = endpoint.clamp(quoted.quote, hold.amount)
    if smaller is None:
        raise errors.BalanceExhausted()
    return with_quote(quoted.model, smaller, quoted.adapted, endpoint)

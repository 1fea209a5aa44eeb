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
from gateway.inference.call import Call
from gateway.inference.call_end import close_claim
from gateway.inference.call_quote import accept_quote, quote_at
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.ledger import Hold
from gateway.ledger.admission import MAX_TRIES, Repriced, terms_keep_changing

#: Errors of an admission that may be tried again with something changed.
ADMITTED_AGAIN = (Repriced, errors.KeyRestricted, errors.QuotaExhausted, errors.CostLimitExceeded)


async def hold_cost(call: Call, endpoint: Endpoint[Any], services: Services) -> None:
    """Hold the worst cost, and begin to renew the lease of the call; raises the error of a refusal."""
    asked = time.monotonic()
    try:
        if call.model.base is not None:  # an own price needs its table before its first hold
            await services.price_tables.ensure(call.quote.price)
        try:
            hold = await services.ledger.admit(call.request_id, call.key, call.quote)
        except ADMITTED_AGAIN as error:
            hold = await _admit_again(call, endpoint, services, error)
    except BaseException:
        close_claim(call)  # a refused call may be retried with the same key
        raise
    call.hold = hold
    if call.quote.output_limit is not None:
        call.reply.headers["x-gateway-max-tokens"] = str(call.quote.output_limit)
    services.metrics.store_round_trip(time.monotonic() - asked)
    services.metrics.begun(endpoint.name)
    if hold.rates is not None:
        hold.rates.write(call.reply.headers)
    services.active_calls.add(call)
    services.clock.begin(call)


def check_call_scopes(call: Call, scopes: str) -> None:
    """Check the scopes of the call's key, and note that they were checked; KeyRestricted if they do not permit it."""
    check_scopes(scopes, call.caller.client_address() if call.caller is not None else "", call.endpoint.name)
    call.key = structs.replace(call.key, scopes=scopes)


async def _admit_again(call: Call, endpoint: Endpoint[Any], services: Services, error: Exception) -> Hold:
    """Admit a call after an error that says what to change; raises an error that nothing can be done about."""
    lowered = restricted = False
    try:
        for _ in range(MAX_TRIES):
            if isinstance(error, Repriced):
                await _reprice(call, endpoint, services, error)
            elif isinstance(error, errors.KeyRestricted):
                if restricted:
                    raise error
                restricted = True
                check_call_scopes(call, error.scopes)
            elif lowered or not call.quote.share:
                raise error
            else:
                lowered = True
            try:
                if lowered:
                    return await _admit_lowered(call, endpoint, services)
                return await services.ledger.admit(call.request_id, call.key, call.quote)
            except ADMITTED_AGAIN as again:
                error = again
        raise terms_keep_changing()
    finally:
        del error  # its traceback refers to this frame


async def _reprice(call: Call, endpoint: Endpoint[Any], services: Services, error: Repriced) -> None:
    """Quote the call again at the prices that its account has now."""
    if error.unknown:
        await services.ledger.terms.read(call.key.account)
    terms = services.ledger.terms.of(call.key.account).terms
    model = call.model = services.catalog.priced(call.model.base or call.model, terms)
    tags = call.quote.tags
    quote_at(call, endpoint, terms, services)
    if tags:
        call.quote = structs.replace(call.quote, tags=tags)
    if model.base is not None:
        await services.price_tables.ensure(call.quote.price)


async def _admit_lowered(call: Call, endpoint: Endpoint[Any], services: Services) -> Hold:
    """Admit a call with a smaller hold, and lower its output limit."""
    hold = await services.ledger.admit(call.request_id, call.key, endpoint.lowerable(call.quote))
    if hold.amount < call.quote.hold:
        try:
            _lower(call, endpoint, hold)
        except BaseException:
            services.ledger.book(hold, None)
            raise
    return hold


def _lower(call: Call, endpoint: Endpoint[Any], hold: Hold) -> None:
    """Lower the output limit to what the smaller hold covers."""
    smaller = endpoint.clamp(call.quote, hold.amount)
    if smaller is None:
        raise errors.BalanceExhausted()
    accept_quote(call, endpoint, smaller)

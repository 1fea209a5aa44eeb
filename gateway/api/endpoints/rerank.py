"""`POST /v1/rerank` and `/v2/rerank`: a query and documents in, the documents by their relevance out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import structs

from gateway.api.endpoints.context_window import check_window
from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import with_safety
from gateway.billing.usage import MAX_TOKENS, Usage, is_possible, text_units, tokens_of
from gateway.billing.usage_bounds import NOTHING, Bounds, Counted, bound_usage
from gateway.catalog import Model
from gateway.encoders.rerank import validate, write_ranking
from gateway.http_server.reply import JSON
from gateway.ids import answer_id
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.services import Services
from gateway.plugins.provider import Rerank
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.scoring.rerank import RerankAnswer, RerankRequest, decode_rerank_request

ID_PREFIX = "rerank-"
#: A search unit as Cohere defines it: a query with up to 100 pieces, which have up to 500 tokens with the query.
PIECE = 500
PIECES = 100


class RerankEndpoint(Endpoint[RerankRequest]):
    """Documents by their relevance to a query."""

    name = "rerank"
    capability = Rerank
    answers = RerankAnswer
    prompt_param = "documents"
    names_model = True

    def decode(self, body: bytes | Examined, account: str, services: Services) -> RerankRequest:
        return decode_rerank_request(body)

    def quote(
        self, request: RerankRequest, model: Model, body_size: int, adapted: Sequence[Adapted[RerankRequest]] = ()
    ) -> Quote:
        query = tokens_of(text_units(request.query), factor=model.token_factor)
        check_window(model, query, "The query", param="query")
        return _quote(model, [query + tokens_of(text_units(one), factor=model.token_factor) for one in request.texts])

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        return _quote(model, [size.tokens])

    async def attempt(self, adapted: Adapted[RerankRequest]) -> RerankAnswer:
        candidate, request = adapted.candidate, adapted.request
        provider = cast("Rerank", candidate.provider)  # the router has checked its capability
        return validate(await provider.rerank(request, candidate.target), request)

    async def encode(self, call: Call, answer: RerankAnswer, services: Services) -> tuple[bytes, str]:
        used = _used(call, answer)
        if used.estimated:
            call.reply.headers["x-gateway-estimated"] = "true"
        body = await write_ranking(
            answer,
            call.request,
            answer_id=answer_id(ID_PREFIX, services.ids.completion_id(call.request_id)),
            model=call.public_model,
            tokens=used.in_text,
            units=used.search_units,
        )
        call.used = used
        return body, JSON


def _quote(model: Model, pairs: Sequence[int]) -> Quote:
    """The quote for the tokens of each document together with the query, as a cross-encoder reads them."""
    tokens = min(sum(pairs), MAX_TOKENS)
    return Quote.of(
        model,
        prompt=Usage(in_text=tokens, search_units=_units(pairs), estimated=True),
        worst_case=Usage(
            in_text=with_safety(tokens), search_units=_units([with_safety(pair) for pair in pairs]), estimated=True
        ),
    )


def _units(pairs: Sequence[int]) -> int:
    pieces = sum(max(1, -(-pair // PIECE)) for pair in pairs)
    return -(-pieces // PIECES)


def _used(call: Call, answer: RerankAnswer) -> Usage:
    """The upstream's counts within their bounds, and the estimate of each count that it does not have."""
    prompt, price = call.quote.prompt, call.quote.price
    reported = Usage.of_chat(answer.usage) if answer.usage is not None and is_possible(answer.usage) else NOTHING
    counted = bound_usage(
        Usage(in_text=reported.tokens_in, provider_cost=reported.provider_cost), _bounds(call), NOTHING
    )
    most = call.quote.worst_case.search_units
    faults, units = [counted.fault] if counted.fault else [], reported.search_units
    if units > most:
        units = most
        faults.append("search units above its request")
    is_estimated = bool(faults) or _lacks_a_count(price, counted.usage.in_text, units)
    used = structs.replace(
        counted.usage,
        in_text=counted.usage.in_text or prompt.in_text,
        search_units=units or prompt.search_units,
        estimated=is_estimated,
    )
    return call.accept_count(Counted(used, ", ".join(faults)))


def _lacks_a_count(price: Price, tokens: int, units: int) -> bool:
    """Whether the upstream did not count what the price charges for; without a price, whether it counted nothing."""
    by_token, by_unit = bool(price.input or price.tiers), bool(price.per_search_unit)
    if not (by_token or by_unit):
        return not (tokens or units)
    return (by_token and not tokens) or (by_unit and not units)


def _bounds(call: Call) -> Bounds:
    """The query is read once for each document, so its bytes count as often."""
    request: RerankRequest = call.request
    again = (len(request.documents) - 1) * len(request.query.encode("utf-8", "surrogatepass"))
    return Bounds(call.body_size + again)

"""`POST /v1/moderations`: texts and images in, what is wrong with them out. No count is charged, only the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gateway.api.endpoints.context_window import check_window
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import with_safety
from gateway.billing.usage import Usage, text_units, tokens_of
from gateway.catalog import Model
from gateway.encoders.moderation import validate, write_results
from gateway.errors import UnsupportedValue
from gateway.http_server.reply import JSON
from gateway.ids import answer_id
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.services import Services
from gateway.plugins.provider import Moderation
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.scoring.moderation import (
    DEFAULT_MODEL,
    ModerationAnswer,
    ModerationImage,
    ModerationRequest,
    decode_moderation_request,
    text_of,
)

ID_PREFIX = "modr-"
PER_IMAGE = 1100  # tokens for the token limits, as of any image of unknown size


class ModerationsEndpoint(Endpoint[ModerationRequest]):
    """Texts and images by categories of harm."""

    name = "moderation"
    capability = Moderation
    answers = ModerationAnswer
    prompt_param = "input"
    names_model = True

    def decode(self, body: bytes | Examined, account: str, services: Services) -> ModerationRequest:
        default = DEFAULT_MODEL if services.catalog.find(DEFAULT_MODEL) is not None else ""
        return decode_moderation_request(body, default_model=default)

    def quote(
        self,
        request: ModerationRequest,
        model: Model,
        body_size: int,
        adapted: Sequence[Adapted[ModerationRequest]] = (),
    ) -> Quote:
        sizes = [sum(_tokens(part, model) for part in parts) for parts in request.inputs]
        check_window(model, max(sizes), "An input", param="input")
        return _quote(model, sum(sizes))

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        return _quote(model, size.tokens)

    def check_candidate(self, request: ModerationRequest, candidate: Candidate) -> None:
        if request.has_images and not _provider(candidate).moderates_images:
            raise UnsupportedValue("This model does not support images in 'input'; send text.", param="input")

    async def attempt(self, adapted: Adapted[ModerationRequest]) -> ModerationAnswer:
        candidate, request = adapted.candidate, adapted.request
        return validate(await _provider(candidate).moderate(request, candidate.target), request)

    async def encode(self, call: Call, answer: ModerationAnswer, services: Services) -> tuple[bytes, str]:
        shown = answer_id(ID_PREFIX, services.ids.completion_id(call.request_id))
        body = write_results(answer, answer_id=shown, model=call.public_model)
        call.used = call.quote.prompt
        return body, JSON


def _quote(model: Model, tokens: int) -> Quote:
    """The call alone costs something; the tokens are for the token limits."""
    return Quote.of(model, prompt=Usage(), worst_case=Usage(), tokens=with_safety(tokens))


def _tokens(part: object, model: Model) -> int:
    if isinstance(part, ModerationImage):
        return PER_IMAGE
    return tokens_of(text_units(text_of(part)), factor=model.token_factor)  # type: ignore[arg-type]


def _provider(candidate: Candidate) -> Moderation:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Moderation", candidate.provider)

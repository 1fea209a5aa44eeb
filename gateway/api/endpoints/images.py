"""`POST /v1/images/generations`: a prompt in, images out, as one document or as named events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, cast

from msgspec import structs

from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import PREVIEW, made_image_tokens, with_safety
from gateway.billing.usage import ImageCount, Usage, possible_usage, text_units, tokens_of
from gateway.billing.usage_bounds import NOTHING, Bounds, bound_usage
from gateway.catalog import Model
from gateway.encoders.images import (
    ImageStreamEncoder,
    count_images,
    error_event,
    other_form,
    validate,
    write_answer,
)
from gateway.errors import GatewayError, UnsupportedValue
from gateway.http_server.reply import JSON
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.services import Services
from gateway.plugins.provider import Images
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.images import ImageAnswer, ImageEvent, ImageRequest, ImageUsage, TokenKinds, decode_image_request

#: The fewest tokens of an image, from published numbers; a quarter of it is believed.
LEAST_PER_IMAGE = 272


class ImagesEndpoint(Endpoint[ImageRequest]):
    """Image generation."""

    name = "images"
    capability: ClassVar[type] = Images
    answers = ImageAnswer
    prompt_param = "prompt"
    filter_code = "content_policy_violation"

    # Before the call -------------------------------------------------------------------------------------------------

    def decode(self, body: bytes | Examined, account: str, services: Services) -> ImageRequest:
        return decode_image_request(body, default_model=services.settings.server.limits.default_image_model)

    def wants_stream(self, request: ImageRequest) -> bool:
        return bool(request.stream)

    def quote(
        self, request: ImageRequest, model: Model, body_size: int, adapted: Sequence[Adapted[ImageRequest]] = ()
    ) -> Quote:
        return _quote(request, tokens_of(text_units(request.prompt), factor=model.token_factor), model)

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        request = ImageRequest(model=model.name, prompt="", n=size.images)
        return _quote(request, size.tokens, model)

    def check_candidate(self, request: ImageRequest, candidate: Candidate) -> None:
        if request.wants_urls and not _provider(candidate).gives_urls:
            raise UnsupportedValue("This model does not support 'url' as response format.", param="response_format")

    # The call --------------------------------------------------------------------------------------------------------

    async def attempt(self, adapted: Adapted[ImageRequest]) -> ImageAnswer:
        candidate, request = adapted.candidate, adapted.request
        return validate(await _provider(candidate).generate_images(request, candidate.target), request)

    def attempt_stream(self, adapted: Adapted[ImageRequest]) -> AsyncIterator[ImageEvent]:
        return _provider(adapted.candidate).stream_images(adapted.request, adapted.candidate.target)

    async def encode(self, call: Call, answer: ImageAnswer, services: Services) -> tuple[bytes, str]:
        request = call.request
        images = count_images(answer.data, request, answer.size, answer.quality)
        usage = possible_usage(answer.usage, ImageUsage)
        used = _used(call, usage, images, previews=0)
        if call.fault or (usage is None and used.estimated):
            call.reply.headers["x-gateway-estimated"] = "true"
            usage = _public(used)
        form = other_form(answer, request)
        if form:
            call.reply.headers["x-gateway-response-format"] = form
        body = write_answer(answer, request, usage)
        call.used = used
        return body, JSON

    def stream_encoder(self, call: Call, opened: Opened[ImageEvent], services: Services) -> ImageStreamEncoder:
        return ImageStreamEncoder(call.request)

    # The end ---------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        encoder: ImageStreamEncoder | None = call.encoder
        if encoder is None or not encoder.content_started:
            return None
        last = encoder.images[-1] if encoder.images else None
        size, quality = (last.size, last.quality) if last else (None, None)
        images = count_images(encoder.images, call.request, size, quality)
        if encoder.under_way and call.client_gone and call.outcome == "ok":
            # The upstream makes and charges an image whose preview it has sent, whether the caller waits for it or not.
            images = structs.replace(images, count=images.count + 1)
        return _used(call, encoder.usage, images, previews=encoder.previews)

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        return error_event(error)


def _quote(request: ImageRequest, prompt: int, model: Model) -> Quote:
    price = model.price
    size, quality = price.most_expensive_image(request.exact_size, request.exact_quality)
    previews = (request.partial_images or 0) * request.count
    return Quote.of(
        model,
        prompt=Usage(in_text=prompt, estimated=True),
        worst_case=Usage(
            in_text=with_safety(prompt),
            out_image=_tokens_made(request, model, price, images=request.count, previews=previews),
            images=ImageCount(request.count, size, quality),
            estimated=True,
        ),
    )


def _provider(candidate: Candidate) -> Images:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Images", candidate.provider)


def _used(call: Call, usage: ImageUsage | None, images: ImageCount, *, previews: int) -> Usage:
    """The delivered images, with the upstream's tokens or an estimate of them."""
    price = call.quote.price
    if usage is not None:
        reported = Usage.of_images(usage, images)
        return call.accept_count(bound_usage(reported, _bounds(call), _least(price, images.count)))
    if not (price.input or price.image_output):
        return Usage(images=images)  # the price has no tokens
    tokens = _tokens_made(call.request, call.model, price, images=images.count, previews=previews)
    return structs.replace(call.quote.prompt, out_image=tokens, images=images)


def _bounds(call: Call) -> Bounds:
    """The bounds of the upstream's counts: its output has no other limit than what was held."""
    forwarded = call.body_size or len(call.request.prompt.encode())  # of a form, its images are counted by themselves
    return Bounds(forwarded, media=call.quote.prompt.in_image, limit=call.quote.worst_case.out_image or None)


def _least(price: Price, images: int) -> Usage:
    """The fewest tokens that so many images can have; none where tokens cost nothing."""
    return Usage(out_image=images * LEAST_PER_IMAGE) if price.image_output else NOTHING


def _tokens_made(request: ImageRequest, model: Model, price: Price, *, images: int, previews: int) -> int:
    """The most output tokens of `images` images; 0 where tokens cost nothing."""
    if not price.image_output:
        return 0
    each = model.max_output_tokens or made_image_tokens(request.exact_size, request.exact_quality)
    return images * each + previews * PREVIEW


def _public(usage: Usage) -> ImageUsage:
    return ImageUsage(
        input_tokens=usage.tokens_in,
        output_tokens=usage.tokens_out,
        total_tokens=usage.tokens_in + usage.tokens_out,
        input_tokens_details=TokenKinds(text_tokens=usage.in_text, image_tokens=usage.in_image),
    )

"""`POST /v1/images/generations`: a prompt in, images out, as one document or as named events while they are made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from msgspec import structs

from gateway.api.answering_handler import AnsweringHandler
from gateway.api.quote import Terms
from gateway.billing.price import Price
from gateway.billing.token_estimate import PREVIEW, made_image_tokens, with_safety
from gateway.billing.usage import ImageCount, Usage, possible_image_usage, text_units, tokens_of
from gateway.catalog import Model
from gateway.encoders.images import ImageStreamEncoder, count_images, error_event, validate, write_answer
from gateway.errors import GatewayError, UnsupportedValue
from gateway.inference.call import Call
from gateway.plugins.provider import Images
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.images import (
    ImageAnswer,
    ImageEvent,
    ImageRequest,
    ImageUsage,
    TokenKinds,
    decode_image_request,
)

#: Tokens beyond which a count is impossible: a frame around the prompt, and what one image may have.
PROMPT_CEILING = 10_000
IMAGE_CEILING = 1_000_000


class ImagesHandler(AnsweringHandler[ImageRequest]):
    """Image generation."""

    endpoint = "images"
    capability = Images
    answers = ImageAnswer
    prompt_param = "prompt"
    filter_code = "content_policy_violation"
    body_size = 0
    used: Usage | None = None
    encoder: ImageStreamEncoder | None = None
    request: ImageRequest

    # Terms -----------------------------------------------------------------------------------------------------------

    def decode(self, body: bytes) -> ImageRequest:
        self.body_size = len(body)
        self.request = decode_image_request(body, default_model=self.gateway.settings.server.default_image_model)
        return self.request

    def wants_stream(self, request: ImageRequest) -> bool:
        return bool(request.stream)

    def price(self, request: ImageRequest, model: Model) -> Terms[ImageRequest]:
        self.adapt(request, model)
        prompt = tokens_of(text_units(request.prompt), factor=model.token_factor)
        price = model.price
        size, quality = price.dearest_image(request.exact_size, request.exact_quality)
        previews = (request.partial_images or 0) * request.count
        return Terms(
            request,
            model,
            Usage(in_text=prompt, estimated=True),
            Usage(
                in_text=with_safety(prompt),
                out_image=_tokens_made(request, model, price, images=request.count, previews=previews),
                images=ImageCount(request.count, size, quality),
                estimated=True,
            ),
            (self.body_size + PROMPT_CEILING, request.count * IMAGE_CEILING),
        )

    def check_candidate(self, request: ImageRequest, candidate: Candidate) -> None:
        if request.wants_urls and not _images(candidate).gives_urls:
            raise UnsupportedValue("This model does not support 'url' as response format.", param="response_format")

    # The answer ------------------------------------------------------------------------------------------------------

    async def serve(self, call: Call, request: ImageRequest) -> None:
        if call.stream:
            await self._serve_stream(call, request)
        else:
            await self._serve_whole(call, request)

    async def _serve_whole(self, call: Call, request: ImageRequest) -> None:
        async def attempt(adapted: Adapted[ImageRequest]) -> ImageAnswer:
            provider = _images(adapted.candidate)
            return validate(await provider.generate_images(adapted.request, adapted.candidate.target), adapted.request)

        answer = await self.call_whole(call, attempt)
        images = count_images(answer.data, request, answer.size, answer.quality)
        usage = possible_image_usage(answer.usage)
        used = self._used(call, usage, images)
        if usage is None and used.estimated:
            self.tell_estimated()
            usage = _public(used)
        body = write_answer(answer, request, usage)
        self.used = used
        self.deliver(call, body)

    async def _serve_stream(self, call: Call, request: ImageRequest) -> None:
        def attempt(adapted: Adapted[ImageRequest]) -> AsyncIterator[ImageEvent]:
            return _images(adapted.candidate).stream_images(adapted.request, adapted.candidate.target)

        opened = await self.open_stream(call, attempt)
        self.encoder = ImageStreamEncoder(request)
        self.end_stream(call, await self.relay(call, opened, self.encoder))

    def error_frame(self, error: GatewayError) -> bytes:
        return error_event(error)

    # The bill --------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        encoder = self.encoder
        if self.used is not None:
            return self.used
        if encoder is not None and encoder.content_started:
            last = encoder.images[-1] if encoder.images else None
            size, quality = (last.size, last.quality) if last else (None, None)
            return self._used(call, encoder.usage, count_images(encoder.images, self.request, size, quality))
        if self.client_gone and call.attempts:
            return call.prompt  # the upstream was already reading it
        return None

    def _used(self, call: Call, usage: ImageUsage | None, images: ImageCount) -> Usage:
        """The images that were delivered, and tokens by the upstream's count or by what they may have been."""
        if usage is not None:
            return Usage.of_images(usage, images)
        previews = self.encoder.previews if self.encoder is not None else 0
        if not (call.price.input or call.price.image_output):
            return Usage(images=images)  # nobody counts tokens here
        tokens = _tokens_made(self.request, call.model, call.price, images=images.count, previews=previews)
        return structs.replace(call.prompt, out_image=tokens, images=images)


def _images(candidate: Candidate) -> Images:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Images", candidate.provider)


def _tokens_made(request: ImageRequest, model: Model, price: Price, *, images: int, previews: int) -> int:
    """Output tokens of so many images at most; none where they cost nothing."""
    if not price.image_output:
        return 0
    each = model.max_output_tokens or made_image_tokens(request.exact_size, request.exact_quality)
    return images * each + previews * PREVIEW


def _public(usage: Usage) -> ImageUsage:
    return ImageUsage(
        input_tokens=usage.tokens_in,
        output_tokens=usage.tokens_out,
        total_tokens=usage.tokens_in + usage.tokens_out,
        input_tokens_details=TokenKinds(text_tokens=usage.in_text),
    )

"""`POST /v1/images/edits` and `/v1/images/variations`: a form with images in, images out, as for generations.

Models of the endpoint `images` serve them, if their provider can. What differs from generations is the form, the tokens
of the images in it, and the names of the events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

from msgspec import structs

from gateway.api.endpoints.images import ImagesEndpoint
from gateway.billing.quote import Quote
from gateway.catalog import Model
from gateway.encoders.images import ImageStreamEncoder, validate
from gateway.inference.call import Call
from gateway.inference.services import Services
from gateway.plugins.provider import ImageEdit
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.images import ImageAnswer, ImageEditRequest, ImageEvent, ImageRequest, decode_image_edit
from gateway.uploads.upload import UploadedForm

#: Tokens of an image that is given: of any size, and what high fidelity adds at most.
PER_IMAGE = 1100
HIGH_FIDELITY = 6240


class ImageEditsEndpoint(ImagesEndpoint):
    """Edits of images, and variations of one."""

    name = "image_edits"
    permission = "images"
    capability = ImageEdit

    def __init__(self, *, varies: bool = False) -> None:
        self._varies = varies

    def decode(  # type: ignore[override]  # its body is a form
        self, body: UploadedForm, account: str, services: Services
    ) -> ImageEditRequest:
        default = services.settings.server.limits.default_image_model
        return decode_image_edit(body.form.texts, body.upload, default_model=default, varies=self._varies)

    def quote(
        self, request: ImageRequest, model: Model, body_size: int, adapted: Sequence[Adapted[ImageRequest]] = ()
    ) -> Quote:
        quote = super().quote(request, model, body_size)
        edit = cast("ImageEditRequest", request)
        tokens = len(edit.files) * (PER_IMAGE + (HIGH_FIDELITY if edit.input_fidelity == "high" else 0))
        return Quote.of(
            model,
            prompt=structs.replace(quote.prompt, in_image=tokens),
            worst_case=structs.replace(quote.worst_case, in_image=tokens),
        )

    async def attempt(self, adapted: Adapted[ImageRequest]) -> ImageAnswer:
        candidate, request = adapted.candidate, cast("ImageEditRequest", adapted.request)
        return validate(await _editor(candidate).edit_images(request, candidate.target), request)

    def attempt_stream(self, adapted: Adapted[ImageRequest]) -> AsyncIterator[ImageEvent]:
        request = cast("ImageEditRequest", adapted.request)
        return _editor(adapted.candidate).stream_edits(request, adapted.candidate.target)

    def stream_encoder(self, call: Call, opened: Opened[ImageEvent], services: Services) -> ImageStreamEncoder:
        return ImageStreamEncoder(call.request, "image_edit")


def _editor(candidate: Candidate) -> ImageEdit:
    """The candidate's provider, whose capability the router has checked."""
    return cast("ImageEdit", candidate.provider)

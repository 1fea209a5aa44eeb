"""The body of `POST /v1/moderations`, and what a provider answers to it (docs/fields.md, "Moderation").

`decode_moderation_request(body, default_model=…)` is the only way in; it raises nothing but `BadRequest` errors. Null
equals absence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from gateway.errors import MissingParameter
from gateway.schemas.duplicate_keys import Examined, unexplained_names
from gateway.schemas.empty_fields import drop_nulls
from gateway.schemas.request_fields import OWN, Core, RequestFields
from gateway.schemas.schema_errors import check_one_kind
from gateway.schemas.validation import BodyDecoder

DEFAULT_MODEL = "omni-moderation-latest"
MAX_INPUTS = 2048
#: Every category, in the order of the answer.
CATEGORIES = (
    "harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm",
    "self-harm/intent", "self-harm/instructions", "sexual", "sexual/minors", "violence", "violence/graphic",
)  # fmt: skip

Name = Annotated[str, Meta(min_length=1, max_length=256)]


class ModerationText(Struct, tag="text", tag_field="type"):
    """A text among parts."""

    text: str


class ModerationImageURL(Struct):
    """Where an image is: an https URL, or the image itself as a base64 data URL."""

    url: Annotated[str, Meta(min_length=1)]


class ModerationImage(Struct, tag="image_url", tag_field="type"):
    """An image among parts; the gateway passes its URL on and never fetches it."""

    image_url: ModerationImageURL


Part = ModerationText | ModerationImage
if TYPE_CHECKING:
    ModelName = str
    Input = str | list[str] | list[Part]
else:
    ModelName = Name | None  # until the default has been put in
    # msgspec tells one kind of array in a union, not two: that all items are of one kind is a rule of its own.
    Input = str | Annotated[list[str | ModerationText | ModerationImage], Meta(min_length=1, max_length=MAX_INPUTS)]


class ModerationRequest(RequestFields, kw_only=True):
    """A valid moderation request."""

    input: Core[Input]
    model: Core[ModelName] = ""

    @property
    def inputs(self) -> list[list[str | Part]]:
        """What is judged, one entry per result: a text, or all parts together."""
        if isinstance(self.input, str):
            return [[self.input]]
        if isinstance(self.input[0], str):
            return [[one] for one in self.input]
        return [[*self.input]]

    @property
    def has_images(self) -> bool:
        """Whether an image is to be judged."""
        return not isinstance(self.input, str) and any(isinstance(part, ModerationImage) for part in self.input)


class ModerationResult(Struct):
    """What a model says about one input, by category; the gateway adds categories that are missing."""

    flagged: bool
    categories: dict[str, bool]
    category_scores: dict[str, float]  # 0 to 1
    category_applied_input_types: dict[str, list[str]] = {}  # "text", "image"


class ModerationAnswer(Struct):
    """What a provider gives back: one result per entry of `inputs`, in their order."""

    results: list[ModerationResult]


_body = BodyDecoder(ModerationRequest, own=OWN, large_fields=frozenset({"input"}))


def text_of(item: str | Part) -> str:
    """The text of an input or of a part; empty for an image."""
    if isinstance(item, ModerationImage):
        return ""
    return item if isinstance(item, str) else item.text


def decode_moderation_request(body: bytes | Examined, *, default_model: str = "") -> ModerationRequest:
    """The request in `body`; raises only BadRequest errors, each with the wire's code and the exact param."""
    request, fields = _body.decode(body)
    unexplained_names(body, len(fields))
    if not request.model:
        if not default_model:
            raise MissingParameter("Missing required parameter: 'model'.", param="model")
        request.model = default_model
    check_one_kind(request.input, "input")
    drop_nulls(fields)
    request.take_fields(fields)
    return request

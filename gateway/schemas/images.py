"""The body of `POST /v1/images/generations`, and what a provider answers to it (wire contract 1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

if TYPE_CHECKING:
    FieldTable = dict[str, Raw]
    Names = tuple[str, ...]
else:
    FieldTable = Names = Raw  # as in chat_request: a caller's field of that name passes unread, and is overwritten

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class ImageRequest(Struct, kw_only=True):
    """A valid images request; an absent or null field is None."""

    prompt: Annotated[str, Meta(min_length=1, max_length=32_000)]
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    n: Annotated[int, Meta(ge=1, le=10)] | None = None
    size: Annotated[str, Meta(pattern=r"^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$")] | None = None
    quality: Literal["auto", "low", "medium", "high", "xhigh", "max", "standard", "hd"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | None = None
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None
    moderation: Literal["low", "auto"] | None = None
    stream: bool | None = None
    partial_images: Annotated[int, Meta(ge=0, le=3)] | None = None
    response_format: Literal["url", "b64_json"] | None = None
    style: Literal["vivid", "natural"] | None = None
    complexity: Literal["low", "medium", "high"] | None = None
    frame_count: Annotated[int, Meta(ge=2, le=16)] | None = None
    frame_duration_ms: Annotated[int, Meta(ge=1, le=60_000)] | None = None
    svg: dict[str, Any] | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    user: str | None = None

    #: Every top-level field as sent, forbidden ones removed.
    fields: FieldTable = field(default_factory=dict)
    #: Names of unknown top-level fields that are in `fields`.
    extra: Names = ()
    #: What was removed, written so that it may stand in `x-gateway-dropped-params`.
    dropped: Names = ()

    @property
    def count(self) -> int:
        """How many images are asked for."""
        return self.n or 1


class ImageInputDetails(Struct):
    """What a prompt's tokens were."""

    text_tokens: Count = 0
    image_tokens: Count = 0


class ImageUsage(Struct, omit_defaults=True):
    """Tokens of an image model, in the wire's words; the details are parts of `input_tokens`."""

    input_tokens: Count = field(default=0)
    output_tokens: Count = field(default=0)
    total_tokens: Count = field(default=0)
    input_tokens_details: ImageInputDetails = field(default_factory=ImageInputDetails)
    output_tokens_details: ImageInputDetails | UnsetType = UNSET


class GeneratedImage(Struct, omit_defaults=True):
    """One image: its bytes as base64, or where they are for a while."""

    b64_json: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    revised_prompt: str | UnsetType = UNSET


class ImageAnswer(Struct):
    """What a provider gives back; what it does not know is None, and the request's own value is then told."""

    data: list[GeneratedImage]
    usage: ImageUsage | None = None
    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: str | None = None


class ImageEvent(Struct):
    """A step of a streamed image: a preview where `partial_index` says which, else a finished image."""

    b64_json: str
    partial_index: int | None = None
    usage: ImageUsage | None = None  # with a finished image, when it is known
    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: str | None = None

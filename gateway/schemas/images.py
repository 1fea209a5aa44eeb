"""The body of `POST /v1/images/generations`, the forms of edits, and the answers to them (docs/fields.md, "Images").

`decode_image_request(body, default_model=…)` and `decode_image_edit(texts, files, default_model=…)` are the only ways
in; they raise nothing but `BadRequest` errors. Null equals absence. The texts of a form become a JSON document first,
so that both have the same rules.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.json import encode

from gateway.errors import MissingParameter
from gateway.schemas.duplicate_keys import Examined, unexplained_names
from gateway.schemas.empty_fields import drop_nulls
from gateway.schemas.forbidden import header_name
from gateway.schemas.request_fields import OWN, Core, Hint, RequestFields, Semantic
from gateway.schemas.schema_errors import invalid
from gateway.schemas.validation import BodyDecoder

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
if TYPE_CHECKING:
    ModelName = str
else:
    ModelName = Name | None  # until the default has been put in

ImageFormat = Literal["png", "webp", "jpeg", "gif", "svg"]

_TRANSPARENT = "a transparent one needs the output format png or webp"
_GIF = "it needs the output format gif"
#: Values that ask for nothing an upstream would not do by itself.
_USUAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "size": ("auto",),
    "quality": ("auto",),
    "background": ("auto",),
    "output_format": ("png",),
    "output_compression": (100,),
}


class SvgReasoning(Struct):
    """How hard the model that draws the vectors thinks."""

    effort: str | None = None


class SvgOptions(Struct):
    """How a vector image is drawn."""

    model: Name
    reasoning: SvgReasoning | None = None


class ImageRequest(RequestFields, kw_only=True):
    """A valid images request; an absent or null field is None."""

    prompt: Core[Annotated[str, Meta(min_length=1, max_length=32_000)]]
    model: Core[ModelName] = ""
    n: Semantic[Annotated[int, Meta(ge=1, le=10)] | None] = None
    size: Semantic[Annotated[str, Meta(pattern=r"^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$(?!\n)")] | None] = None
    quality: Semantic[Literal["auto", "low", "medium", "high", "xhigh", "max", "standard", "hd"] | None] = None
    background: Semantic[Literal["transparent", "opaque", "auto"] | None] = None
    output_format: Semantic[ImageFormat | None] = None
    output_compression: Semantic[Annotated[int, Meta(ge=0, le=100)] | None] = None
    moderation: Hint[Literal["low", "auto"] | None] = None
    stream: Core[bool | None] = None
    partial_images: Hint[Annotated[int, Meta(ge=0, le=3)] | None] = None
    response_format: Core[Literal["url", "b64_json"] | None] = None  # URLs are for a provider that `gives_urls`
    style: Hint[Literal["vivid", "natural"] | None] = None
    complexity: Hint[Literal["low", "medium", "high"] | None] = None
    frame_count: Semantic[Annotated[int, Meta(ge=2, le=16)] | None] = None
    frame_duration_ms: Semantic[Annotated[int, Meta(ge=1, le=60_000)] | None] = None
    svg: Semantic[SvgOptions | None] = None
    safety_identifier: Hint[Annotated[str, Meta(max_length=128)] | None] = None
    user: Hint[str | None] = None

    @property
    def count(self) -> int:
        """How many images are asked for."""
        return self.n or 1

    @property
    def format(self) -> ImageFormat:
        """The format of the images."""
        return self.output_format or "png"

    @property
    def wants_urls(self) -> bool:
        """Whether the images are to be fetched from addresses."""
        return self.response_format == "url"

    @property
    def exact_size(self) -> str:
        """WIDTHxHEIGHT, or empty where the model chooses."""
        return "" if self.size in (None, "auto") else str(self.size)

    @property
    def exact_quality(self) -> str:
        """The quality, or empty where the model chooses."""
        return "" if self.quality in (None, "auto") else str(self.quality)

    def demands(self) -> frozenset[str]:
        return frozenset(name for name in super().demands() if getattr(self, name) not in _USUAL.get(name, ()))


class ImageFile(Protocol):
    """An uploaded image, kept on disk: it may be read as often as there are attempts."""

    name: str  # "image", "mask" or "markup"
    filename: str
    media_type: str  # "image/png", "image/jpeg" or "image/webp", by its first bytes
    size: int  # bytes

    def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes from the start, in pieces of at most 64 KiB; each call begins anew."""


class ImageEditRequest(ImageRequest, kw_only=True):
    """A valid request for edits, or for variations, which have no prompt; an absent field is None."""

    prompt: Core[Annotated[str, Meta(max_length=32_000)]] = ""
    image: Core[list[ImageFile]] = field(default_factory=list)  # 1 to 16
    mask: Core[ImageFile | None] = None
    markup: Core[ImageFile | None] = None
    input_fidelity: Hint[Literal["high", "low"] | None] = None

    @property
    def is_variation(self) -> bool:
        """Whether other images like the given one are wanted."""
        return not self.prompt

    @property
    def files(self) -> list[ImageFile]:
        """All of its images."""
        return [*self.image, *(file for file in (self.mask, self.markup) if file is not None)]


class TokenKinds(Struct):
    """What tokens were."""

    text_tokens: Count = 0
    image_tokens: Count = 0


class ImageUsage(Struct):
    """Tokens of an image model, in the wire's words; the details are parts of the counts."""

    input_tokens: Count = field(default=0)
    output_tokens: Count = field(default=0)
    total_tokens: Count = field(default=0)
    input_tokens_details: TokenKinds = field(default_factory=TokenKinds)
    output_tokens_details: TokenKinds | UnsetType = UNSET


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

    def as_events(self) -> list[ImageEvent]:
        """The same as the steps of a stream: the finished images, usage with the last."""
        shape = self.size, self.quality, self.background, self.output_format
        last = len(self.data) - 1
        return [
            ImageEvent(image.b64_json or "", None, self.usage if number == last else None, *shape, url=image.url or "")
            for number, image in enumerate(self.data)
        ]


class ImageEvent(Struct):
    """A step of a streamed image: a preview where `partial_index` says which, else a finished image."""

    b64_json: str
    partial_index: int | None = None
    usage: ImageUsage | None = None  # of the whole stream up to here, with a finished image, when it is known
    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: str | None = None
    url: str = ""  # of a finished image whose bytes the upstream did not send


R = TypeVar("R", bound=ImageRequest)

_body = BodyDecoder(ImageRequest, own=OWN)
_edit_body = BodyDecoder(ImageEditRequest, own=OWN)
#: The names of a form that stand for members of objects.
_NESTED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "svg[model]": (("svg", "model"),),
    "svg[reasoning][effort]": (("svg", "reasoning"), ("reasoning", "effort")),
}
_WHOLE_NUMBERS = frozenset({"n", "output_compression", "partial_images", "frame_count", "frame_duration_ms"})
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_FLAGS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False}


def decode_image_request(body: bytes | Examined, *, default_model: str = "") -> ImageRequest:
    """The request in `body`; raises only BadRequest errors, each with the wire's code and the exact param."""
    return _decode(_body, body, default_model)


def decode_image_edit(
    texts: Sequence[tuple[str, str]], files: Sequence[ImageFile], *, default_model: str = "", varies: bool = False
) -> ImageEditRequest:
    """The request that a form's texts and images make; raises only BadRequest errors."""
    request = _decode(_edit_body, encode(_document(texts)), default_model)
    request.image = [file for file in files if file.name == "image"]
    request.mask = next((file for file in files if file.name == "mask"), None)
    request.markup = next((file for file in files if file.name == "markup"), None)
    if not request.image:
        raise MissingParameter("Missing required parameter: 'image'.", param="image")
    if not varies and not request.prompt:
        raise MissingParameter("Missing required parameter: 'prompt'.", param="prompt")
    rules = (
        ("prompt", varies and request.prompt, "a variation has none"),
        ("image", varies and len(request.image) > 1, "a variation has one"),
        ("mask", varies and request.mask, "a variation has none"),
        ("markup", request.markup and (varies or request.mask), "it is not allowed here, or beside a mask"),
        ("stream", varies and request.stream, "variations are not streamed"),
    )
    for name, broken, why in rules:
        if broken:
            raise invalid(name, why)
    return request


def _document(texts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The texts of a form as the document that they stand for; what has no right type stays a text."""
    document: dict[str, Any] = {}
    for name, text in texts:
        if not text and name != "model":
            continue  # an empty field is an absent one: a form has no null
        holder, key = document, name
        for outer, inner in _NESTED.get(name, ()):
            holder, key = holder.setdefault(outer, {}), inner
        if key in holder or not isinstance(holder, dict):
            raise invalid(header_name(name), "it was given more than once")
        holder[key] = _typed(name, text)
    return document


def _typed(name: str, text: str) -> object:
    if name in _WHOLE_NUMBERS and _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    return _FLAGS.get(text.lower(), text) if name == "stream" else text


def _decode(decoder: BodyDecoder[R], body: bytes | Examined, default_model: str) -> R:
    request, fields = decoder.decode(body)
    unexplained_names(body, len(fields))
    if not request.model:
        if not default_model:
            raise MissingParameter("Missing required parameter: 'model'.", param="model")
        request.model = default_model
    _check(request)
    drop_nulls(fields)
    request.take_fields(fields, searched=("svg",))
    return request


def _check(request: ImageRequest) -> None:
    """The rules that no single field can tell."""
    kind, stream = request.format, request.stream
    compressed = request.output_compression not in (None, 100)
    rules = (
        ("background", request.background == "transparent" and kind not in ("png", "webp"), _TRANSPARENT),
        ("output_compression", compressed and kind not in ("webp", "jpeg"), "it needs the output format webp or jpeg"),
        ("partial_images", request.partial_images and not stream, "it is only allowed when 'stream' is true"),
        ("response_format", stream and request.wants_urls, "a stream carries the images themselves"),
        ("frame_count", request.frame_count is not None and kind != "gif", _GIF),
        ("frame_duration_ms", request.frame_duration_ms is not None and kind != "gif", _GIF),
        ("svg", request.svg is not None and kind != "svg", "it needs the output format svg"),
        ("n", kind == "svg" and request.count > 1, "only one image is drawn as svg"),
        ("stream", kind == "svg" and stream, "an svg is not streamed"),
    )
    for name, broken, why in rules:
        if broken:
            raise invalid(name, why)

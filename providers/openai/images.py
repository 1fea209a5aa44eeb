"""Images of OpenAI-compatible servers: one document, or previews and finished images as named events.

OpenAI's own models always answer with base64 and refuse `response_format`; most other servers answer with addresses
unless it says otherwise, so it is sent to them (`image_response_format`). Sharp edge: whether the usage of a finished
image is its own or that of the stream so far is not published; one that does not grow is taken as its own and added.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway import (
    Answer,
    Event,
    GeneratedImage,
    ImageAnswer,
    ImageEvent,
    ImageRequest,
    Images,
    ImageUsage,
    Target,
    Upstream,
)
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.plugins.upstream_errors import error_of_document
from gateway.sse import DONE_DATA

from .._shared.documents import decoded, json_object, raise_error_event
from .._shared.image_usage import add_usage
from .._shared.whole_stream import events_of, is_event_stream
from .server import OpenAIServer, SharedOptions, fields_body

EDIT, GENERATION = "image_edit.", "image_generation."  # how the names of events begin
PREVIEW, COMPLETED = "image_generation.partial_image", "image_generation.completed"

PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")  # how the files of images begin

_TRUE = Raw(b"true")


class WireImage(Struct):
    """One image as it comes."""

    b64_json: str | None = None
    url: str | None = None
    revised_prompt: str | None = None


class WireShape(Struct):
    """What an answer and an event both tell of their images."""

    usage: Any = None
    size: Any = None
    quality: Any = None
    background: Any = None
    output_format: Any = None
    error: Any = UNSET


class WireAnswer(WireShape):
    """The answer as it comes."""

    data: list[WireImage | str] | None = None
    images: list[WireImage | str] | None = None  # SiliconFlow


class WireEvent(WireShape):
    """An event's data as it comes."""

    type: str | None = None
    b64_json: str | None = None
    url: str | None = None
    partial_image_index: int | None = None


_answers = msgspec.json.Decoder(WireAnswer)
_events = msgspec.json.Decoder(WireEvent)


class OpenAIImages(OpenAIServer, Images):
    """`POST /images/generations`."""

    image_fields: ClassVar[frozenset[str] | None] = None

    def __init__(self, options: SharedOptions, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        said = options.image_response_format
        self.gives_urls = said == "send" or (said == "auto" and not self.official)

    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        """One JSON answer."""
        body = image_body(request, target, self.options, formats=self.gives_urls, stream=False)
        return read_images(await self.post_whole("/images/generations", body, target), self.hidden)

    async def stream_images(self, request: ImageRequest, target: Target) -> AsyncIterator[ImageEvent]:
        """Previews and images as they are made."""
        body = image_body(request, target, self.options, formats=self.gives_urls, stream=True)
        async with await self.post("/images/generations", body, target) as answer:
            async for step in read_stream(answer, request.count, self.hidden):
                yield step


async def read_stream(answer: Answer, count: int, hidden: Sequence[str]) -> AsyncIterator[ImageEvent]:
    """The steps of a streamed answer with `count` images, or of a server that does not stream."""
    if answer.headers.get("Content-Type", "").startswith(("application/json", "image/")):
        for whole in read_images(await answer.read(), hidden).as_events():
            yield whole
        return
    reader = ImageReader(hidden)
    while events := await answer.read_events():
        for event in events:
            step = reader.read(event)
            if step is not None:
                yield step
    if reader.completed < count:
        raise UpstreamTruncated(detail=f"{reader.completed} of {count} images")


class ImageReader:
    """Reads the events of one stream; `completed` counts its finished images."""

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self._hidden = hidden
        self._usage: ImageUsage | None = None  # of the stream so far
        self._newest = 0  # output tokens that the newest event told
        self.completed = 0

    def read(self, event: Event) -> ImageEvent | None:
        """The step in `event`; None for one that is neither a preview nor an image."""
        if event.data == DONE_DATA:
            return None
        if event.name == "error":
            raise_error_event(event.data, self._hidden)
        found = decoded(_events, event.data)
        if found.error or found.type == "error":
            raise error_of_document(found.error or json_object(event.data), self._hidden)
        kind = (found.type or event.name).replace(EDIT, GENERATION, 1)
        if kind == "message" and (found.b64_json or found.url):  # the event of a server that names none
            kind = COMPLETED if found.partial_image_index is None else PREVIEW
        if kind not in (PREVIEW, COMPLETED):
            return None
        step = ImageEvent(found.b64_json or "", None, None, *_said(found), url=found.url or "")
        if kind == PREVIEW:
            step.partial_index = found.partial_image_index or 0
            return step
        self.completed += 1
        step.usage = self._usage = self._add(read_usage(found.usage))
        return step

    def _add(self, usage: ImageUsage | None) -> ImageUsage | None:
        before, newest = self._usage, self._newest
        if usage is None or before is None:
            self._newest = usage.output_tokens if usage else newest
            return usage or before
        self._newest = usage.output_tokens
        if usage.output_tokens > newest:
            return usage
        add_usage(usage, before)
        return usage


def image_body(request: ImageRequest, target: Target, options: SharedOptions, *, formats: bool, stream: bool) -> bytes:
    """The JSON to send for `request` to `target`; `formats`: the server knows `response_format`."""
    fields = dict(request.fields)
    fields.pop("response_format", None)
    fields.pop("stream", None)
    if stream:
        fields["stream"] = _TRUE
    else:
        fields.pop("partial_images", None)
        if formats:
            fields["response_format"] = Raw(b'"url"' if request.wants_urls else b'"b64_json"')
    return fields_body(fields, target, options)


def read_images(body: bytes, hidden: Sequence[str] = ()) -> ImageAnswer:
    """The images in a JSON body, in the events of a stream, or as the body itself; an error in it is raised."""
    if body.startswith(PICTURES):
        return ImageAnswer([GeneratedImage(b64_json=b2a_base64(body, newline=False).decode())])
    if is_event_stream(body):
        return _read_events(body, hidden)
    answer = decoded(_answers, body)
    if answer.error:
        raise error_of_document(answer.error, hidden)
    found = answer.data or answer.images
    if not found:
        raise UpstreamInvalidResponse(detail="an answer without images")
    images = [WireImage(image, image) if isinstance(image, str) else image for image in found]
    data = [GeneratedImage(_known(image.b64_json), _known(image.url), _known(image.revised_prompt)) for image in images]
    return ImageAnswer(data, read_usage(answer.usage), *_said(answer))


def _read_events(body: bytes, hidden: Sequence[str]) -> ImageAnswer:
    """The finished images of a stream that came although none was asked for."""
    reader = ImageReader(hidden)
    steps = [step for event in events_of(body) if (step := reader.read(event)) and step.partial_index is None]
    if not steps:
        raise UpstreamInvalidResponse(detail="events without an image")
    last = steps[-1]
    images = [GeneratedImage(_known(step.b64_json), _known(step.url)) for step in steps]
    return ImageAnswer(images, last.usage, last.size, last.quality, last.background, last.output_format)


def read_usage(document: Any) -> ImageUsage | None:
    """Usage, if it is one."""
    if not isinstance(document, dict):
        return None
    try:
        usage = msgspec.convert({name: value for name, value in document.items() if value is not None}, ImageUsage)
    except msgspec.ValidationError:
        return None
    return usage if usage.input_tokens or usage.output_tokens else None


def _said(found: WireShape) -> tuple[str | None, str | None, str | None, str | None]:
    """Size, quality, background and format, as far as they are texts."""
    return (
        _text_or_none(found.size),
        _text_or_none(found.quality),
        _text_or_none(found.background),
        _text_or_none(found.output_format),
    )


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _known(text: str | None) -> str | UnsetType:
    return text if text else UNSET

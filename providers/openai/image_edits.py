"""Edits and variations of images at OpenAI-compatible servers: a form with the images, streamed from the disk.

One image goes as `image`, several as `image[]`, as OpenAI's clients send them. Answers and events are those of
generations, with other names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from gateway import ImageAnswer, ImageEdit, ImageEditRequest, ImageEvent, Multipart, Target

from .images import read_images, read_stream
from .server import OpenAIServer, SharedOptions

EDITS, VARIATIONS = "/images/edits", "/images/variations"
OWN = frozenset({"model", "response_format", "stream", "partial_images"})  # written by `edit_form` itself


class OpenAIImageEdit(OpenAIServer, ImageEdit):
    """`POST /images/edits` and `/images/variations`; `gives_urls` is that of generations."""

    image_edit_fields: ClassVar[frozenset[str] | None] = None

    async def edit_images(self, request: ImageEditRequest, target: Target) -> ImageAnswer:
        """One JSON answer."""
        form = edit_form(request, target, self.options, formats=self.gives_urls, stream=False)
        path = VARIATIONS if request.is_variation else EDITS
        return read_images(await self.post_whole(path, form, target), self.hidden)

    async def stream_edits(self, request: ImageEditRequest, target: Target) -> AsyncIterator[ImageEvent]:
        """Previews and images as they are made."""
        form = edit_form(request, target, self.options, formats=self.gives_urls, stream=True)
        async with await self.post(EDITS, form, target) as answer:
            async for step in read_stream(answer, request.count, self.hidden):
                yield step


def edit_form(
    request: ImageEditRequest, target: Target, options: SharedOptions, *, formats: bool, stream: bool
) -> Multipart:
    """The form to send; its files go last. `formats`: the server knows `response_format`."""
    form = Multipart().field("model", target.model)
    if stream:
        form.field("stream", "true")
        if request.partial_images is not None:
            form.field("partial_images", str(request.partial_images))
    elif formats:
        form.field("response_format", "url" if request.wants_urls else "b64_json")
    for name, raw in request.fields.items():
        if name not in OWN:
            for inner, text in _texts(msgspec.json.decode(raw)):
                form.field(f"{options.rename.get(name, name)}{inner}", text)
    for file in request.files:
        name = "image[]" if file.name == "image" and len(request.image) > 1 else file.name
        form.file(name, file.chunks(), filename=file.filename, content_type=file.media_type, size=file.size)
    return form


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """A value as texts of a form, each with what follows the name of its field."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from ((f"[{key}]{inner}", text) for inner, text in _texts(member))
    else:
        yield "", value if isinstance(value, str) else msgspec.json.encode(value).decode()

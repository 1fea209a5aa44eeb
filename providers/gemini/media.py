"""Images, audio and documents of a prompt as Gemini's parts.

What travels inside the request goes on as it came. An address is passed on only where Google itself keeps what it
points to. Any other address is refused before anything is sent; with `fetch_media` the gateway has fetched it before.
"""

from __future__ import annotations

import mimetypes
from typing import Any
from urllib.parse import urlsplit

from gateway.errors import UnsupportedValue
from gateway.schemas.chat_messages import AudioPart, FilePart, ImagePart

from .._shared.data_url import image_type, is_address, is_data_url, read_data_url

_VIDEO_HOSTS = frozenset({"www.youtube.com", "youtube.com", "m.youtube.com", "youtu.be"})
_FILES_HOST = "generativelanguage.googleapis.com"
_HOSTED = "This model takes addresses of Google's own file services only; send the content as a base64 data URL."


def image_part(part: ImagePart, path: str) -> dict[str, Any]:
    """An image as `inlineData`, or as `fileData` where Google hosts it; `path` is the part's place in the request."""
    param = f"{path}.image_url.url"
    url = part.image_url.url
    if not is_data_url(url):
        return hosted_part(url, param)
    image = read_data_url(url, param)
    return inline(image_type(image.data) or image.media_type, image.data)


def audio_part(part: AudioPart) -> dict[str, Any]:
    """Audio."""
    return inline(f"audio/{part.input_audio.format}", part.input_audio.data)


def file_part(part: FilePart, path: str) -> dict[str, Any]:
    """A document; its media type must be told, since Gemini does not look."""
    param = f"{path}.file.file_data"
    if is_address(part.file.file_data or ""):
        return hosted_part(part.file.file_data or "", param)
    file = read_data_url(part.file.file_data or "", param)
    kind = file.media_type or mimetypes.guess_type(part.file.filename or "")[0]
    if not kind:
        raise UnsupportedValue("The data URL must name its media type.", param=param)
    return inline(kind, file.data)


def hosted_part(url: str, param: str) -> dict[str, Any]:
    """A file that Google keeps: Cloud Storage, the Files API, YouTube."""
    address = urlsplit(url)
    host = (address.hostname or "") if address.scheme == "https" else ""
    if host in _VIDEO_HOSTS:
        return {"fileData": {"fileUri": url, "mimeType": "video/mp4"}}
    files = host == _FILES_HOST and "/files/" in address.path
    if not (files or (address.scheme == "gs" and address.netloc)):
        raise UnsupportedValue(_HOSTED, param=param)
    kind = mimetypes.guess_type(address.path)[0]
    return {"fileData": {"fileUri": url, **({"mimeType": kind} if kind else {})}}


def inline(media_type: str, data: str) -> dict[str, Any]:
    """Content inside the request."""
    return {"inlineData": {"mimeType": media_type, "data": data}}

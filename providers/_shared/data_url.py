"""Data URLs: images and documents inside a request.

`read_data_url(url, param)` splits one into media type and base64. `image_type(data)` reads an image's type from its
first bytes, because callers declare a JPEG as PNG and vendors refuse an image of another type. The base64 is forwarded
unchanged: 20 MB are not decoded and encoded again. Sharp edge: only `text_of` checks that it can be decoded.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import unquote

from msgspec import Struct

from gateway.errors import InvalidValue

_HEAD = 32  # characters of base64; enough for every signature below


class DataURL(Struct, frozen=True):
    """The content of a data URL."""

    media_type: str  # lower case, without parameters
    data: str  # base64

    def text_of(self, param: str) -> str:
        """The content as text; InvalidValue if it is not UTF-8."""
        try:
            return base64.b64decode(self.data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise InvalidValue(f"Invalid '{param}': expected UTF-8 text as base64.", param=param) from None


def read_data_url(url: str, param: str) -> DataURL:
    """Split a data URL; InvalidValue names `param` if it is not base64 or has no content."""
    head, comma, data = url.partition(",")
    scheme, _, described = head.partition(":")
    media_type, *parameters = described.split(";")
    if scheme.strip().lower() != "data" or not comma or "base64" not in [part.strip().lower() for part in parameters]:
        raise InvalidValue(f"Invalid '{param}': expected a base64 data URL.", param=param)
    if "%" in data:
        data = unquote(data)
    data = "".join(data.split()) if any(space in data for space in " \t\r\n") else data
    if not data:
        raise InvalidValue(f"Invalid '{param}': the data URL is empty.", param=param)
    return DataURL(media_type.strip().lower(), data)


def is_data_url(url: str) -> bool:
    """Whether this is a data URL."""
    return url[:5].lower() == "data:"


def is_address(url: str) -> bool:
    """Whether this is an https address."""
    return url[:8].lower() == "https://"


def image_type(data: str) -> str:
    """The media type according to the first bytes of an image; empty if vendors do not accept that type."""
    try:
        head = base64.b64decode(data[:_HEAD])
    except binascii.Error:
        return ""
    if head.startswith(b"RIFF"):
        return "image/webp" if head[8:12] == b"WEBP" else ""
    return next((kind for magic, kind in _IMAGES.items() if head.startswith(magic)), "")


_IMAGES: Mapping[bytes, str] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}

"""Uploaded images as providers see them, made of the form they came in.

Only the first bytes are looked at: they say which type an image has. Nothing is decoded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType

from gateway.errors import InvalidValue, OutOfRange
from gateway.uploads.form import Form, FormFile
from gateway.uploads.spool import Spool

IMAGE, MASK, MARKUP = "image", "mask", "markup"
NAMES = frozenset({IMAGE, MASK, MARKUP})
MAX_IMAGES = 16
MAX_SIZE: Mapping[str, int] = MappingProxyType({IMAGE: 50 * 2**20, MASK: 4 * 2**20, MARKUP: 50 * 2**20})  # bytes
HEAD = 12  # bytes that tell the type
MAX_NAME = 128  # characters of a file name that are passed on
PNG = "image/png"
EXTENSIONS: Mapping[str, str] = MappingProxyType({PNG: "png", "image/jpeg": "jpg", "image/webp": "webp"})


class Picture:
    """One image: what it is for, its name, its type, and its bytes as often as they are asked for."""

    def __init__(self, file: FormFile, media_type: str, spool: Spool) -> None:
        self.name = _use(file)
        self.filename = _filename(file.filename, media_type)
        self.media_type = media_type
        self.size = file.size
        self._start = file.start
        self._spool = spool

    def chunks(self) -> AsyncIterator[bytes]:
        """The bytes from the start, in pieces of at most 64 KiB; each call begins anew."""
        return self._spool.chunks(self._start, self._start + self.size)


async def pictures_of(form: Form, spool: Spool) -> list[Picture]:
    """The images of the form, in their order; raises BadRequest errors for those that no upstream takes."""
    for name in NAMES:
        most = MAX_IMAGES if name == IMAGE else 1
        count = sum(_use(file) == name for file in form.files)
        if count > most:
            text = f"Invalid '{name}': array too long. Expected an array with maximum length {most}, but got {count}."
            raise OutOfRange(text, code="array_above_max_length", param=name)
    return [Picture(file, await _checked_type(file, spool), spool) for file in form.files]


async def _checked_type(file: FormFile, spool: Spool) -> str:
    """The type of an image by its first bytes."""
    name = _use(file)
    if not file.size:
        raise InvalidValue(f"Invalid '{name}': it is empty.", param=name)
    if file.size > MAX_SIZE[name]:
        raise InvalidValue(f"Invalid '{name}': it has more than {MAX_SIZE[name]} bytes.", param=name)
    kind = _type_of(await spool.read(file.start, min(HEAD, file.size)))
    supported = [PNG] if name != IMAGE else list(EXTENSIONS)
    if kind not in supported:
        raise InvalidValue(f"Invalid '{name}': it is no image of a type of {', '.join(supported)}.", param=name)
    return kind


def _type_of(head: bytes) -> str:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    return "image/webp" if head.startswith(b"RIFF") and head[8:] == b"WEBP" else ""


def _use(file: FormFile) -> str:
    return file.name.partition("[")[0]


def _filename(filename: str, media_type: str) -> str:
    """The caller's name for the file without any folder, and with the extension of its type."""
    name = filename.replace("\\", "/").rpartition("/")[2]
    name = "".join(character for character in name if character.isprintable())[-MAX_NAME:] or "image"
    extension = EXTENSIONS[media_type]
    if name.lower().endswith((f".{extension}", ".jpeg" if extension == "jpg" else f".{extension}")):
        return name
    return f"{name}.{extension}"

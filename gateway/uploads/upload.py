"""An uploaded audio file as providers see it, made of the form it came in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from gateway.errors import InvalidValue
from gateway.uploads.durations import examine_audio
from gateway.uploads.form import Form
from gateway.uploads.spool import Spool

#: Media types by file extension.
EXTENSIONS: Mapping[str, str] = MappingProxyType(
    {
        "flac": "audio/flac",
        "m4a": "audio/mp4",
        "mp3": "audio/mpeg",
        "mp4": "audio/mp4",
        "mpeg": "audio/mpeg",
        "mpga": "audio/mpeg",
        "oga": "audio/ogg",
        "ogg": "audio/ogg",
        "opus": "audio/ogg",
        "wav": "audio/wav",
        "webm": "audio/webm",
    }
)
_MAIN = ("flac", "m4a", "mp3", "ogg", "wav", "webm")
_EXTENSION_OF = MappingProxyType({kind: extension for extension, kind in EXTENSIONS.items() if extension in _MAIN})
MAX_NAME = 128  # characters of a file name that are passed on


class Upload:
    """One audio file: its name, its type, its length, and its bytes as often as they are asked for."""

    def __init__(self, spool: Spool, *, filename: str, media_type: str, seconds: float | None) -> None:
        self.filename = filename
        self.media_type = media_type
        self.size = spool.size
        self.seconds = seconds  # as its headers claim
        self._spool = spool

    @classmethod
    async def of(cls, form: Form, spool: Spool) -> Upload | None:
        """The audio in the form; None where the form holds no file, InvalidValue where the file holds no audio."""
        if form.filename is None:
            return None
        if not spool.size:
            raise InvalidValue("Invalid 'file': it is empty.", param="file")
        size = spool.size
        audio = await spool.examine(lambda read: examine_audio(read, size))
        extension = _extension(form.filename)
        declared = form.content_type if form.content_type.startswith(("audio/", "video/")) else ""
        if audio is None or not (audio.kind or extension in EXTENSIONS or declared):
            supported = ", ".join(sorted(EXTENSIONS))
            raise InvalidValue(f"Invalid 'file': it holds no audio. Supported are: {supported}.", param="file")
        media_type = EXTENSIONS.get(extension) or declared or EXTENSIONS[audio.kind]
        return cls(spool, filename=_name(form.filename, media_type), media_type=media_type, seconds=audio.seconds)

    def chunks(self) -> AsyncIterator[bytes]:
        """The bytes from the start, in pieces of at most 64 KiB; each call begins anew."""
        return self._spool.chunks()


class UploadedForm(Struct):
    """What an endpoint decodes: a form, and what its kind makes of the files: an `Upload` or None, or `Picture`s."""

    form: Form
    upload: Any


def _name(filename: str, media_type: str) -> str:
    """The caller's name for the file without any folder, and with an extension: upstreams go by it."""
    name = filename.replace("\\", "/").rpartition("/")[2]
    name = "".join(character for character in name if character.isprintable())[-MAX_NAME:] or "audio"
    if _extension(name) in EXTENSIONS or media_type not in _EXTENSION_OF:
        return name
    return f"{name}.{_EXTENSION_OF[media_type]}"


def _extension(name: str) -> str:
    stem, _, extension = name.rpartition("/")[2].rpartition(".")
    return extension.lower() if stem else ""

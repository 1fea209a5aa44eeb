"""The kinds of forms with files: the names of their files, and what is made of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from gateway.uploads.form import Form
from gateway.uploads.pictures import IMAGE, MAX_IMAGES, NAMES, pictures_of
from gateway.uploads.spool import Spool
from gateway.uploads.stored_upload import StoredUpload
from gateway.uploads.upload import Upload


class FormKind(Struct, frozen=True):
    """One kind; the names and numbers are those of `FormReader`."""

    uploaded: Callable[[Form, Spool], Awaitable[Any]]  # makes `UploadedForm.upload`; raises BadRequest errors
    limit: Literal["max_audio_body", "max_image_body", ""]  # the setting with the size of the form; "": of [files]
    file: str = "file"
    more_files: frozenset[str] = frozenset()
    most_files: int = 1
    large_fields: frozenset[str] = frozenset()  # names of text fields that may be long


#: One file that is kept as it is.
STORED_FORM = FormKind(StoredUpload.of, "")
AUDIO_FORM = FormKind(Upload.of, "max_audio_body", large_fields=frozenset({"known_speaker_references"}))
#: All images, a mask and a markup, which exclude each other.
IMAGE_FORM = FormKind(
    pictures_of,
    "max_image_body",
    file=IMAGE,
    more_files=NAMES,
    most_files=MAX_IMAGES + 2,
    large_fields=frozenset({"prompt"}),
)

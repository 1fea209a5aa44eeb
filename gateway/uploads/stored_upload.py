"""An uploaded file that is kept as it is, made of the form it came in."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.errors import MissingParameter
from gateway.uploads.form import Form
from gateway.uploads.spool import Spool

LONGEST_NAME = 255  # characters of a file name that are kept


class StoredUpload:
    """One file: its name, its size in bytes, and its bytes."""

    def __init__(self, spool: Spool, filename: str) -> None:
        self.filename = filename
        self.size = spool.size
        self._spool = spool

    @classmethod
    async def of(cls, form: Form, spool: Spool) -> StoredUpload:
        """The file in the form; MissingParameter if it has none."""
        if form.filename is None:
            raise MissingParameter("Missing required parameter: 'file'.", param="file")
        name = form.filename.replace("\\", "/").rpartition("/")[2]
        return cls(spool, "".join(filter(str.isprintable, name))[-LONGEST_NAME:] or "file")

    def chunks(self) -> AsyncIterator[bytes]:
        """The bytes from the start."""
        return self._spool.chunks()

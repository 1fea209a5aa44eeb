"""A multipart/form-data body, read as it arrives: short texts into memory, files into a spool.

::

    reader = FormReader(content_type, spool, file="file")
    reader.feed(data)            # for each piece; BadRequest at the first error
    form = reader.finish()       # the form is whole, or BadRequest

Several files stand in the spool one after the other. Parts may come in any order. What makes two forms the same,
whatever boundary they were sent with, is `digest`. Sharp edge: a field's name is the caller's own text; nothing here
says that it means anything.
"""

from __future__ import annotations

import hashlib
import logging
import re
import struct
from collections.abc import Collection
from typing import Any

from msgspec import Struct
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gateway.errors import BadRequest, InvalidValue, OutOfRange, UnsupportedContentType
from gateway.schemas.forbidden import header_name
from gateway.uploads.budget import Share
from gateway.uploads.spool import Spool

MEDIA_TYPE = "multipart/form-data"
MAX_PARTS = 64
MAX_TEXT = 65_536  # bytes of one text field
MAX_LARGE_TEXT = 1 << 20  # of one that may hold audio as a data URL
MAX_TEXTS = 5 << 20  # of all of them

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTHS = struct.Struct("!QQ")
_PLAIN = frozenset({"", "7bit", "8bit", "binary"})  # transfer encodings that change nothing
_silent = logging.Logger("form", level=logging.CRITICAL + 1)  # the parser would log every malformed form


class FormFile(Struct, frozen=True):
    """One file of a form, and its place in the spool, in bytes."""

    name: str  # of its part
    filename: str
    content_type: str  # as sent
    start: int
    size: int


class Form(Struct, frozen=True):
    """A whole form; `filename` is None where no file came."""

    texts: list[tuple[str, str]]  # name and value, in the order they came
    files: tuple[FormFile, ...] = ()
    digest: str = ""

    @property
    def filename(self) -> str | None:
        """The name of the first file."""
        return self.files[0].filename if self.files else None

    @property
    def content_type(self) -> str:
        """The type of the first file's part, as sent."""
        return self.files[0].content_type if self.files else ""


class FormReader:
    """Reads one form.

    `file` is the name of a part with a file, and `more_files` are further ones, whose names may go on with `[`.
    `large_fields` names fields that may be longer than others; `memory` is the budget of its texts.
    """

    def __init__(
        self,
        content_type: str,
        spool: Spool,
        *,
        file: str,
        more_files: Collection[str] = (),
        most_files: int = 1,
        large_fields: Collection[str] = (),
        memory: Share | None = None,
    ) -> None:
        boundary = _boundary(content_type)
        self._spool = spool
        self._memory = memory  # the budget of the texts
        self._file = file
        self._more_files = more_files
        self._most_files = most_files
        self._large_fields = large_fields
        self._parser = _parser(boundary, self)
        self._texts: list[tuple[str, str]] = []
        self._left = MAX_TEXTS
        self._parts = 0
        self._files: list[FormFile] = []
        self._ended = False
        self._begun = False  # whether anything but line ends was fed
        self._hash = hashlib.sha256()
        # Of the part under way:
        self._headers: dict[str, str] = {}
        self._header_name = self._header_value = b""
        self._name = ""
        self._value: bytearray | None = None  # of a text; None while a file comes
        self._filename = self._content_type = ""  # of a file
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        if not self._begun:
            # The parser skips some bytes before the first boundary, and others only where the body is cut.
            data = data.lstrip(b"\r\n")
            self._begun = bool(data)
            if data and data[:1] != b"-":
                raise BadRequest("The request body is not valid multipart/form-data.")
        try:
            self._parser.write(data)
        except FormParserError:
            raise BadRequest("The request body is not valid multipart/form-data.") from None

    def finish(self) -> Form:
        """The form, once its last byte was fed."""
        self.close()
        if not self._ended:
            raise BadRequest("The request body is truncated: the form has no end.")
        return Form(self._texts, tuple(self._files), self._hash.hexdigest())

    def close(self) -> None:
        """Read no more; else the parser and this reader hold each other, and the spool, until the collector comes."""
        self._parser.callbacks = {}

    # What the parser calls -------------------------------------------------------------------------------------------

    def on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadRequest(f"The form has more than {MAX_PARTS} parts.")
        self._headers.clear()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def on_header_end(self) -> None:
        if _CONTROL.search(self._header_value):
            raise BadRequest("A part of the form has a control character in its head.")
        self._headers[self._header_name.decode("latin-1").lower()] = self._header_value.decode("latin-1")
        self._header_name = self._header_value = b""

    def on_headers_finished(self) -> None:
        kind, options = parse_options_header(self._headers.get("content-disposition"))
        if kind != b"form-data" or b"name" not in options:
            raise BadRequest("A part of the form has no name.")
        self._name, self._size = _text(options[b"name"]), 0
        if self._headers.get("content-transfer-encoding", "").strip().lower() not in _PLAIN:
            raise self._invalid("a transfer encoding is not supported.")
        if self._name != self._file and self._name.partition("[")[0] not in self._more_files:
            self._value = bytearray()
            return
        if len(self._files) == self._most_files:
            most = "one file" if self._most_files == 1 else f"{self._most_files} files"
            raise self._invalid(f"the form holds more than {most}.")
        self._value = None
        self._filename = _text(options.get(b"filename", b""))
        self._content_type = self._headers.get("content-type", "").partition(";")[0].strip().lower()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        piece = memoryview(data)[start:end]
        self._size += len(piece)
        self._hash.update(piece)
        if self._value is None:
            self._spool.write(piece)
            return
        limit = MAX_LARGE_TEXT if self._name.partition("[")[0] in self._large_fields else MAX_TEXT
        if self._size > limit:
            shown = header_name(self._name)
            raise OutOfRange(
                f"Invalid '{shown}': string too long. Expected at most {limit} bytes.",
                code="string_above_max_length",
                param=shown,
            )
        self._left -= len(piece)
        if self._left < 0:
            raise BadRequest(f"The form holds more than {MAX_TEXTS} bytes of text.")
        if self._memory is not None:
            self._memory.take(len(piece))
        self._value += piece

    def on_part_end(self) -> None:
        # Content first, then what it was, then both lengths: read from its end, the whole has one meaning only.
        label = f"{self._name}\0{self._filename if self._value is None else ''}".encode("utf-8", "surrogatepass")
        self._hash.update(label)
        self._hash.update(_LENGTHS.pack(self._size, len(label)))
        if self._value is None:
            start = self._spool.size - self._size
            self._files.append(FormFile(self._name, self._filename, self._content_type, start, self._size))
            return
        try:
            self._texts.append((self._name, self._value.decode()))
        except UnicodeDecodeError:
            raise self._invalid("it is not valid UTF-8.") from None

    def on_end(self) -> None:
        self._ended = True

    def _invalid(self, cause: str) -> InvalidValue:
        shown = header_name(self._name)
        return InvalidValue(f"Invalid '{shown}': {cause}", param=shown)


def is_form(content_type: str | None) -> bool:
    """Whether a Content-Type header names a form with a file."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == MEDIA_TYPE


def _boundary(content_type: str) -> bytes:
    if not is_form(content_type):
        raise UnsupportedContentType(f"Content-Type must be {MEDIA_TYPE}")
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not re.fullmatch(rb"[ -~]{0,69}[!-~]", boundary):
        raise BadRequest("The Content-Type has no valid boundary.")
    return boundary


def _parser(boundary: bytes, reader: FormReader) -> MultipartParser:
    names = (
        "part_begin", "part_data", "part_end", "header_field", "header_value", "header_end", "headers_finished", "end",
    )  # fmt: skip
    callbacks: Any = {f"on_{name}": getattr(reader, f"on_{name}") for name in names}
    parser = MultipartParser(boundary, callbacks)
    parser.logger = _silent
    return parser


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")

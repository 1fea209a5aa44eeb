"""The lines of a batch's input: found and checked once, then read one by one.

`examine(path, …)` reads the file in pieces, in a thread. It keeps the place of each line and no content, so a file of
200 MB takes a few MB. A line is an object with `custom_id`, `method`, `url` and `body`; blank lines are passed over.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from gateway.batches.batch import BatchError

PIECE = 1 << 20  # bytes read at once
MOST_ERRORS = 50
LONGEST_ID = 512  # characters of a custom_id
BOM = b"\xef\xbb\xbf"


class Line(Struct, frozen=True):
    """One request; `number` is its line in the file, from 1."""

    number: int
    custom_id: str
    body: bytes


class _Fields(Struct):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: Raw = Raw(b"null")


class _Body(Struct):
    model: Any = None
    stream: Any = None


_fields = msgspec.json.Decoder(_Fields)
_body = msgspec.json.Decoder(_Body)


class Examination:
    """What is in an input: the places of its lines, or what is wrong with it."""

    def __init__(self) -> None:
        self.errors: list[BatchError] = []
        self._numbers = array("Q")
        self._starts = array("Q")
        self._sizes = array("Q")

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: int, start: int, size: int) -> None:
        """A valid line; its place in bytes."""
        self._numbers.append(number)
        self._starts.append(start)
        self._sizes.append(size)

    @property
    def numbers(self) -> array[int]:
        """The numbers of the valid lines."""
        return self._numbers

    def read(self, file: BinaryIO, index: int) -> Line:
        """The line of this index among the valid ones."""
        file.seek(self._starts[index])
        fields = _fields.decode(file.read(self._sizes[index]).removeprefix(BOM))
        return Line(self._numbers[index], fields.custom_id, bytes(fields.body))


def examine(path: Path, endpoint: str, *, most_lines: int, longest: int) -> Examination:
    """Find and check the lines of a file. `longest`: bytes of a line. OSError."""
    found, seen = Examination(), set[bytes]()
    for number, start, line in _lines(path, longest):
        if len(found.errors) == MOST_ERRORS:
            break
        if line is None:
            found.errors.append(BatchError("line_too_long", f"The line has more than {longest} bytes.", line=number))
            continue
        if not line.removeprefix(BOM if number == 1 else b"").strip():
            continue
        if len(found) == most_lines:
            message = f"The file has more than {most_lines} requests."
            found.errors.append(BatchError("too_many_requests", message, line=number))
            break
        problem = _problem(line.removeprefix(BOM) if number == 1 else line, number, endpoint, seen)
        if problem is not None:
            found.errors.append(problem)
        else:
            found.add(number, start, len(line))
    if not found and not found.errors:
        found.errors.append(BatchError("empty_file", "The file has no requests."))
    return found


def _lines(path: Path, longest: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, start and content of each line, without its end; the content of a line that is too long is None."""
    with path.open("rb") as file:
        number = start = 0
        while True:
            line = file.readline(longest + 2)
            if not line:
                return
            number += 1
            content: bytes | None = line.rstrip(b"\r\n")
            size = len(line)
            while not line.endswith(b"\n"):  # the rest of a line that is too long, or the end of the file
                line = file.readline(PIECE)
                if not line:
                    break
                size, content = size + len(line), None
            if content is not None and len(content) > longest:
                content = None
            yield number, start, content
            start += size


def _problem(line: bytes, number: int, endpoint: str, seen: set[bytes]) -> BatchError | None:
    """What is wrong with a line; adds its custom_id to `seen`."""

    def wrong(code: str, message: str, param: str | None = None) -> BatchError:
        return BatchError(code, message, param, number)

    try:
        line.decode()
        fields = _fields.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return wrong("invalid_json_line", "The line is not a valid JSON object.")
    custom_id = fields.custom_id
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= LONGEST_ID:
        return wrong("invalid_custom_id", f"custom_id is a text of 1 to {LONGEST_ID} characters.", "custom_id")
    mark = hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if mark in seen:
        return wrong("duplicate_custom_id", "Another line has the same custom_id.", "custom_id")
    seen.add(mark)
    if fields.method != "POST":
        return wrong("invalid_method", "method is POST.", "method")
    if fields.url != endpoint:
        return wrong("mismatched_endpoint", f"url is the endpoint of the batch, {endpoint}.", "url")
    return _problem_of_body(fields.body, wrong)


def _problem_of_body(body: Raw, wrong: Any) -> BatchError | None:
    try:
        content = _body.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        problem: BatchError = wrong("invalid_body", "body is a JSON object.", "body")
        return problem
    if not isinstance(content.model, str) or not content.model:
        missing: BatchError = wrong("missing_required_parameter", "body.model is the name of a model.", "body.model")
        return missing
    if content.stream not in (None, False):
        stream: BatchError = wrong("unsupported_value", "A line of a batch has no stream.", "body.stream")
        return stream
    return None

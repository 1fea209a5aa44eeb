"""PDF files for tests: scanned or written, with plain objects or with object streams."""

from __future__ import annotations

import base64
import random
import zlib
from typing import Any


def scanned(pages: int, *, size: int = 4_000_000, object_streams: bool = False) -> bytes:
    """A PDF of `size` bytes, whose pages are pictures that do not compress; as scanners write it."""
    noise = random.Random(pages).randbytes(size // pages)
    pictures = [
        b"%d 0 obj\n<</Type/XObject/Subtype/Image/Filter/DCTDecode/Length %d>>\nstream\n%b\nendstream\nendobj\n"
        % (number + 10_000, len(noise), noise)
        for number in range(pages)
    ]
    return b"%PDF-1.7\n" + b"".join(pictures) + page_tree(pages, object_streams=object_streams) + b"%%EOF\n"


def page_tree(pages: int, *, object_streams: bool = False, count: int | None = None) -> bytes:
    """The objects of the pages and of the node above them; `count` replaces the number that the node gives."""
    kids = b" ".join(b"%d 0 R" % (number + 100) for number in range(pages))
    root = b"<</Type/Pages/Kids[%b]/Count %d>>" % (kids, pages if count is None else count)
    leaves = [b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>"] * pages
    if not object_streams:
        objects = [b"2 0 obj\n%b\nendobj\n" % root]
        objects += [b"%d 0 obj\n%b\nendobj\n" % (number + 100, leaf) for number, leaf in enumerate(leaves)]
        return b"".join(objects)
    return object_stream([root, *leaves])


def object_stream(objects: list[bytes]) -> bytes:
    """The objects, deflated into one stream."""
    packed = zlib.compress(b" ".join(objects))
    head = b"<</Type/ObjStm/N %d/First 0/Filter/FlateDecode/Length %d>>" % (len(objects), len(packed))
    return b"5 0 obj\n" + head + b"\nstream\r\n" + packed + b"\r\nendstream\nendobj\n"


def file_part(document: bytes, kind: str = "application/pdf") -> dict[str, Any]:
    """The content part that carries a document."""
    data = f"data:{kind};base64,{base64.b64encode(document).decode()}"
    return {"type": "file", "file": {"filename": "scan.pdf", "file_data": data}}

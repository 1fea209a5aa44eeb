"""The number of pages of a PDF, for estimates: by its page tree, without rendering and without following references.

`pdf_pages(document, budget)` finds page objects and the `/Count` of page-tree nodes, in plain objects and in object
streams, and takes the larger number. Sharp edge: the numbers come from the caller's bytes. Time is bounded for any
bytes: each byte is searched a fixed number of times, and `InflateBudget` bounds the rest.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from itertools import islice

MAX_ENCODED = 12 << 20  # base64 characters of all documents of a request that are decoded
LEAST_ENCODED = 64 << 10  # that are decoded of each document, even if that is more
MAX_INFLATED = 8 << 20  # bytes of all object streams of a request
MAX_STREAMS = 1_000  # object streams of a request
MAX_PACKED = 1 << 20  # bytes of one object stream before it is inflated
STEP = 64 << 10  # bytes that are inflated at once
STEP_PACKED = 4 << 10  # bytes that are read at once
PER_PACKED = 10  # inflated bytes that a packed one counts at least; object streams have four to ten
MAX_FOUND = 100_000  # page objects of a request that are counted
MAX_COUNTS = 10_000  # `/Count` entries of a request that are looked at
AROUND = 400  # bytes before and after `/Count` in which its dictionary begins and ends

# Possessive quantifiers (`}+`) never go back, so bytes that almost match cost no more than others.
_PAGE = re.compile(rb"/Type\s{0,16}+/Page(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s{1,16}+(\d{1,9}+)(?!\d)")
_STREAM = re.compile(rb"stream\r?\n")
_OUTLINE = (b"/Title", b"/First", b"/Outlines")  # keys of dictionaries whose `/Count` counts bookmarks


class InflateBudget:
    """What may still be decoded, inflated and counted for one request."""

    def __init__(self) -> None:
        self.encoded = MAX_ENCODED
        self.bytes = MAX_INFLATED
        self.streams = MAX_STREAMS
        self.pages = MAX_FOUND
        self.counts = MAX_COUNTS

    def take_encoded(self, size: int) -> int:
        """The base64 characters to decode of a document of `size`: all, or half of those that are left."""
        taken = min(size, max(self.encoded // 2, LEAST_ENCODED))
        self.encoded = max(0, self.encoded - taken)
        return taken


def pdf_pages(document: bytes, budget: InflateBudget, *, whole: bool = True) -> int:
    """The pages that are found; 0 if none are.

    A part of a document (not `whole`) needs a `/Count`, because most of the page objects may be in another part.
    """
    pages, most = _found(document, budget)
    for part in _object_streams(document, budget):
        more, most = _found(part, budget, most)
        pages += more
    return max(pages, most) if whole or most else 0


def _found(part: bytes, budget: InflateBudget, most: int = 0) -> tuple[int, int]:
    """The number of page objects, and the largest `/Count` of a page-tree node if it is above `most`."""
    pages = sum(1 for _ in islice(_PAGE.finditer(part), budget.pages))
    budget.pages -= pages
    for match in islice(_COUNT.finditer(part), budget.counts):
        budget.counts -= 1
        if int(match[1]) > most and not _is_outline(part, match.start()):
            most = int(match[1])
    return pages, most


def _is_outline(part: bytes, at: int) -> bool:
    start = part.rfind(b"<<", max(0, at - AROUND), at)
    end = part.find(b">>", at, at + AROUND)
    around = part[max(start, at - AROUND, 0) : end if end > 0 else at + AROUND]
    return any(key in around for key in _OUTLINE)


def _object_streams(document: bytes, budget: InflateBudget) -> Iterator[bytes]:
    """The inflated object streams, as far as the budget goes; a stream that breaks off gives what comes before."""
    at = document.find(b"/ObjStm")
    while at >= 0 and budget.bytes > 0 and budget.streams > 0:
        budget.streams -= 1
        begin = _STREAM.search(document, at, at + AROUND)
        end = at + len(b"/ObjStm")
        if begin is not None:
            end = document.find(b"endstream", begin.end(), begin.end() + MAX_PACKED)
            end = begin.end() + MAX_PACKED if end < 0 else end
            yield _inflated(memoryview(document)[begin.end() : end], budget)
        at = document.find(b"/ObjStm", end)


def _inflated(packed: memoryview, budget: InflateBudget) -> bytes:
    """The bytes of a stream up to its end, its first error or the end of the budget.

    Each step is subtracted whether it succeeds or not, because an error costs the time that came before it. A step that
    gives fewer bytes than it reads is subtracted by what it reads: empty blocks take time too.
    """
    inflating = zlib.decompressobj()
    found: list[bytes] = []
    at, rest = 0, b""
    while budget.bytes > 0 and not inflating.eof and (rest or at < len(packed)):
        read = rest
        if not read:
            read = bytes(packed[at : at + STEP_PACKED])
            at += STEP_PACKED
        most = min(STEP, budget.bytes)
        try:
            found.append(inflating.decompress(read, most))
        except zlib.error:
            budget.bytes -= most
            break
        rest = inflating.unconsumed_tail
        budget.bytes -= min(budget.bytes, max(len(found[-1]), PER_PACKED * (len(read) - len(rest))))
    return b"".join(found)

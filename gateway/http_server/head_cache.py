"""The head of a connection's last request. Most SDKs send the same head again, with another Content-Length.

`keep` takes heads that the parser has read and found plain, and stores them from the second request on. `again` tells
whether arrived bytes are the same head, with any number of digits in its one Content-Length. Such a head needs no
parser: llhttp has accepted it, and another decimal number changes nothing else. Sharp edge: the head, with the client's
key, stays in memory while the connection is open, as it does in the read buffer.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.http_server.head import RequestHead

LONGEST: Final = 4096  # bytes of a head that is kept
MOST_DIGITS: Final = 15
IN_VAIN: Final = 4  # heads stored without a repetition, after which no more are stored for this client
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*\r\n", re.IGNORECASE)


class HeadCache:
    """One per connection."""

    __slots__ = ("_after", "_before", "_digits", "_head", "_in_vain", "_met")

    def __init__(self) -> None:
        self._met = False  # whether there was a request: the head of a single request is not stored
        self._head: RequestHead | None = None
        self._before = self._digits = self._after = b""
        self._in_vain = 0

    def again(self, data: bytearray, start: int, end: int) -> RequestHead | None:
        """The head in data[start:end] if it is the stored one: 1.6 µs per request, 5.6 µs with llhttp."""
        head = self._head
        if head is None or not data.startswith(self._before, start, end) or not data.endswith(self._after, start, end):
            return None
        digits = bytes(data[start + len(self._before) : end - len(self._after)])
        if digits != self._digits:
            if not digits.isdigit() or len(digits) > MOST_DIGITS:
                return None
            head = self._head = RequestHead(
                head.start_line, head.headers.with_length(digits), int(digits), False, head.keep_alive, False
            )
            self._digits = digits
        self._in_vain = 0
        return head

    def keep(self, head: RequestHead, raw: bytes) -> None:
        """Store a head with its bytes if only its one Content-Length may differ in the next request."""
        self._head = None
        if not self._met:
            self._met = True
            return
        if self._in_vain >= IN_VAIN or head.chunked or head.expects_continue or len(raw) > LONGEST:
            return
        length = _LENGTH.search(raw)
        if length is None or head.headers.raw("Content-Length") != [length[1]]:
            return
        self._in_vain += 1
        self._head, self._digits = head, length[1]
        self._before, self._after = raw[: length.start(1)], raw[length.end(1) :]

"""Identifiers the gateway makes: unguessable, fixed in shape (docs/api.md).

`Ids` draws from the kernel in pages and is for the request path; the functions draw each time and are for the rest.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from base64 import b32hexencode
from binascii import b2a_base64

# base64 yields 64 symbols and base62 has 62: the two odd ones are folded, which costs less than a bit of 174.
_BASE62 = bytes.maketrans(b"+/", b"7x")
REQUEST = 20  # random characters of a request id, the last ones
TIME, SHOWN_TIME = 12, 9  # characters of the time, in hex in a request id, and to the base of 36 in a completion id
PREFIX = len("req_") + TIME  # characters of a request id before those that are random
_COMPLETION = re.compile(rf"[a-z]{{1,16}}[_-]([0-9a-z]{{{SHOWN_TIME}}})([0-9a-f]{{{REQUEST}}})", re.ASCII)
KEY_RANDOM, KEY_TIME, KEY_LENGTH = 45, 45, 18  # bits of the two parts of a key's id, and its characters after `key_`
PAGE = 3072  # bytes per draw: a system call for every id took 4 % of the governed path


class Ids:
    """Ids from a page of randomness; each byte is used once. One per process: it must not survive a fork.

    A request id begins with the time at which its page was drawn. So those of one time are neighbours in the database's
    index, and new lines change few of its pages, however long the history is: behind 2,000,000 lines, SQLite wrote 4.8
    KB per line instead of 16.8 KB, with 0.68 times the CPU.
    """

    def __init__(self) -> None:
        self._prefix = self._hex = ""  # the page, as text: all at once, for each id took 0.4 µs
        self._hex_at = 0
        self._shown_of = self._shown = ""  # the prefix of a request id, and that of its completion id

    def request_id(self) -> str:
        """`req_` and 32 lower hex digits; the last 20 are random."""
        at = self._hex_at
        if at + REQUEST > len(self._hex):
            self._prefix, self._hex, at = _request_prefix(), os.urandom(PAGE).hex(), 0
        self._hex_at = end = at + REQUEST
        return self._prefix + self._hex[at:end]

    def completion_id(self, request_id: str) -> str:
        """`chatcmpl-` and 29 lower-case letters and digits: those of the request id, written differently.

        So a call is found by the id that its client sees, and nothing is stored for it. `to_request_id` is the inverse.
        """
        prefix = request_id[:PREFIX]
        if prefix != self._shown_of:
            self._shown_of, self._shown = prefix, "chatcmpl-" + _base36(int(prefix[-TIME:], 16))
        return self._shown + request_id[PREFIX:]


def request_id() -> str:
    """`req_` and 32 lower hex digits; the last 20 are random."""
    return _request_prefix() + os.urandom(REQUEST // 2).hex()


def answer_id(prefix: str, completion_id: str) -> str:
    """The id of an answer in another dialect: a prefix such as `resp_`, and the characters of its completion id."""
    return prefix + completion_id[len("chatcmpl-") :]


def to_request_id(shown: str) -> str:
    """The request id of the id of an answer; any other text as it is, such as a request id."""
    found = _COMPLETION.fullmatch(shown)
    return shown if found is None else f"req_{int(found[1], 36):0{TIME}x}{found[2]}"


def key_id() -> str:
    """`key_` and 18 of the characters 0-9 and a-v; the last 9 are random.

    The first 9 are the milliseconds since 1970, so ids are in the order of their creation.
    """
    number = int(time.time() * 1000) << KEY_RANDOM | secrets.randbits(KEY_RANDOM)
    whole = -(-KEY_LENGTH * 5 // 8) * 8  # bits of whole bytes
    encoded = b32hexencode((number << whole - KEY_TIME - KEY_RANDOM).to_bytes(whole // 8, "big"))
    return "key_" + encoded[:KEY_LENGTH].decode().lower()


def key_order(id_: str) -> tuple[int, str]:
    """Sorts ids of keys by their creation.

    Ids of older versions are shorter and do not show their age. They go first, in an order that stays.
    """
    return len(id_), id_


def tool_call_id() -> str:
    """`call_` and 24 base62 characters."""
    return "call_" + _base62(os.urandom(18))


def padding() -> str:
    """0 to 31 characters that hide a chunk's length from whoever watches the wire."""
    random = os.urandom(25)
    return _base62(random[1:])[: random[0] & 31]


def _request_prefix() -> str:
    """`req_` and the milliseconds since 1970 as 12 hex digits."""
    return f"req_{int(time.time() * 1000):012x}"


def _base36(number: int) -> str:
    """Digits and lower-case letters, as `int(text, 36)` reads them; enough for milliseconds until the year 5188."""
    digits = ""
    for _ in range(SHOWN_TIME):
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def _base62(random: bytes) -> str:
    """Four characters for three bytes."""
    return b2a_base64(random, newline=False).translate(_BASE62).decode()

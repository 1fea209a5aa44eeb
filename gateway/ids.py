"""Identifiers the gateway makes: unguessable, fixed in shape (docs/api.md).

`Ids` draws from the kernel in pages and is for the request path; the functions draw each time and are for the rest.
"""

from __future__ import annotations

import os
import secrets
import time
from base64 import b32hexencode
from binascii import b2a_base64

# base64 yields 64 symbols and base62 has 62: the two odd ones are folded, which costs less than a bit of the 174 here.
_BASE62 = bytes.maketrans(b"+/", b"7x")
REQUEST, COMPLETION = 20, 29  # random characters of an id, the last ones
KEY_RANDOM, KEY_TIME, KEY_LENGTH = 45, 45, 18  # bits of the two parts of a key's id, and its characters after `key_`
PAGE = 3072  # bytes per draw: a system call for every id took 4 % of the governed path


class Ids:
    """Ids from a page of randomness; each byte is used once. One per process: it must not survive a fork.

    A request id begins with the time at which its page was drawn. So those of one time are neighbours in the database's
    index, and new lines change few of its pages, however long the history is: behind 2,000,000 lines, SQLite wrote 4.8
    KB per line instead of 16.8 KB, with 0.68 times the CPU.
    """

    def __init__(self) -> None:
        self._prefix = self._hex = self._base62 = ""  # the pages, as text: all at once, for each id took 0.4 µs
        self._hex_at = self._base62_at = 0

    def request_id(self) -> str:
        """`req_` and 32 lower hex digits; the last 20 are random."""
        at = self._hex_at
        if at + REQUEST > len(self._hex):
            self._prefix, self._hex, at = _request_prefix(), os.urandom(PAGE).hex(), 0
        self._hex_at = end = at + REQUEST
        return self._prefix + self._hex[at:end]

    def completion_id(self) -> str:
        """`chatcmpl-` and 29 base62 characters."""
        at = self._base62_at
        if at + COMPLETION > len(self._base62):
            self._base62, at = _base62(os.urandom(PAGE)), 0
        self._base62_at = end = at + COMPLETION
        return "chatcmpl-" + self._base62[at:end]


def request_id() -> str:
    """`req_` and 32 lower hex digits; the last 20 are random."""
    return _request_prefix() + os.urandom(REQUEST // 2).hex()


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


def _base62(random: bytes) -> str:
    """Four characters for three bytes."""
    return b2a_base64(random, newline=False).translate(_BASE62).decode()

"""What a command answers, in Python's types, and as bytes of the Redis protocol, version 3.

bytes, int, None and list are what they seem. `Status`, `Fault`, `Map`, `Double` and `Pairs` are forms that Lua sees in
another way.
"""

from __future__ import annotations

from typing import Any


class Status(bytes):
    """A simple string, such as OK."""


class Fault(Exception):
    """An error reply; the text begins with its kind, such as ERR or WRONGTYPE."""


class Map(dict[bytes, bytes]):
    """A hash: a map in version 3, a flat list for Lua."""


class Double(float):
    """A score: a double in version 3, a text for Lua."""


class Pairs(list[tuple[bytes, Double]]):
    """Members with their scores: a list of pairs in version 3, a flat list for Lua."""


OK = Status(b"OK")
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


def number_text(value: float) -> bytes:
    """A double as the server writes it."""
    if value in (float("inf"), float("-inf")):
        return b"inf" if value > 0 else b"-inf"
    return b"%d" % value if value.is_integer() and abs(value) < 9e18 else repr(float(value)).encode()


def encode(reply: Any) -> bytes:
    """The bytes of a reply."""
    match reply:
        case None:
            return b"_\r\n"
        case Status():
            return b"+%b\r\n" % reply
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case Double():
            return b",%b\r\n" % number_text(reply)
        case int():
            return b":%d\r\n" % reply
        case Fault():
            return b"-%b\r\n" % str(reply).encode()
        case Map():
            return b"%%%d\r\n" % len(reply) + b"".join(encode(one) for pair in reply.items() for one in pair)
        case list() | tuple():
            return b"*%d\r\n" % len(reply) + b"".join(map(encode, reply))
    raise AssertionError(f"no reply has the type {type(reply)}")

"""Finds keys that occur twice in one object of a JSON text.

msgspec keeps the last of two equal keys, other parsers keep the first. So a request with such keys could mean one thing
to the gateway and another to an upstream, and it is refused. Most requests need no search: a text without more colons
than the keys that the decoded request must have has none twice, and no unknown ones. Otherwise `key_names` reads the
text again with the standard library's C parser, which takes about 7 µs for a kilobyte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway.errors import InvalidJSON
from gateway.schemas.forbidden import header_name

_SPACE: Final = b" \t\r\n"
_NONE: Final = frozenset[str]()
_encode = msgspec.json.Encoder().encode


class Examined(Struct, frozen=True):
    """A large text whose keys were checked by `gateway.schemas.large_json`."""

    content: bytes
    names: frozenset[str]  # of all keys
    fields: dict[str, Raw] | None  # the top level; None if it cannot be decoded
    tools: Sequence[Any] | None = None  # of a request of the gateway's own; `content` is without them


def own_request(document: Mapping[str, Any]) -> Examined:
    """A request that the gateway itself has written; its fields are encoded once, and not read again.

    Its tools are not even written into the content: an agent sends 40 KB of them, which would be read once more.
    """
    fields = {name: Raw(_encode(value)) for name, value in document.items()}
    tools = document.get("tools")
    small = fields if tools is None else {name: raw for name, raw in fields.items() if name != "tools"}
    return Examined(_encode(small), _NONE, fields, tools)


def most_keys(text: bytes) -> int:
    """At least the number of keys in valid JSON text; more only if a string contains a quote before a colon."""
    return text.translate(None, _SPACE).count(b'":')


def _has_keys(text: bytes, number: int) -> bool:
    """Whether valid JSON text has no more than `number` keys, each with its colon next to it."""
    return (
        text.count(b'":') == number
        and text.find(b" :") < 0  # 0.06 µs; `in` takes 0.10, because CPython tries an int first
        and text.find(b"\n:") < 0
        and text.find(b"\t:") < 0
        and text.find(b"\r:") < 0
    )


def unexplained_names(body: bytes | Examined, least: int) -> AbstractSet[str]:
    """The names of all keys in a valid body that has more keys than `least`; else an empty set.

    `least` is the number of keys that the decoded request shows to be there. InvalidJSON if an object has a key twice.
    """
    if not isinstance(body, bytes):
        return body.names
    if body.count(b":") == least or _has_keys(body, least) or most_keys(body) == least:
        return _NONE
    return key_names(body)


def key_names(text: bytes) -> set[str]:
    """The names of all keys at any depth; InvalidJSON if an object has one twice.

    Text that is not JSON at all gives an empty set, because the decoders that read it name its error.
    """
    tables: list[dict[str, Any]] = []
    if not _parse(text, object_hook=tables.append):
        return set()
    found = sum(map(len, tables))
    # An object with a key twice has one key less than it has colons after a quote.
    if found != text.count(b":") and found != most_keys(text) and (name := _repeated(text)) is not None:
        raise InvalidJSON(f"The request body has the key '{header_name(name)}' more than once in one object.")
    return set().union(*tables)


def _parse(text: bytes, **hook: Callable[[Any], None]) -> bool:
    """Pass each object to the hook; False for text that is not JSON.

    All of these are C functions: the parser builds no document and calls no Python code.
    """
    try:
        json.JSONDecoder(parse_int=len, parse_float=len, strict=False, **hook).decode(text.decode())
    except RecursionError:
        raise InvalidJSON("The request body is nested too deeply.") from None
    except ValueError:
        return False
    return True


def _repeated(text: bytes) -> str | None:
    """The first key that an object has twice; None if there is none."""
    objects: list[list[tuple[str, Any]]] = []
    _parse(text, object_pairs_hook=objects.append)
    for pairs in objects:
        if len(dict(pairs)) == len(pairs):
            continue
        met: set[str] = set()
        for name, _ in pairs:
            if name in met:
                return name
            met.add(name)
    return None

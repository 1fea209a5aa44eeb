"""Marks on parts of chat messages, in the server's words (docs/providers/openai.md, "Marks for the prompt cache").

OpenAI's word is `prompt_cache_breakpoint`, Anthropic's is `cache_control`. A server gets those that it knows, in its
own word; other servers may refuse the member, so it is left out. Sharp edge: marks of a Messages request are only in
the typed messages, because a server of which nothing is known must not get them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, Raw

from gateway import ChatRequest, Target
from gateway.schemas.cache_marks import ANTHROPIC_MARK, MARKS, OPENAI_MARK, marked_parts
from gateway.schemas.chat_messages import CacheBreakpoint, CachedPart
from gateway.schemas.native_request import MESSAGES

Marks = Literal["as_sent", "openai", "anthropic", "none"]

MOST_MARKS = 4  # that Anthropic takes in one request; the last ones count most
_NONE: frozenset[str] = frozenset()
_OWN_WORD = frozenset({OPENAI_MARK})
#: Models of OpenAI with explicit breakpoints: from GPT-5.6 on. Older ones may refuse a mark that the caller did not
#: write for them.
_EXPLICIT = re.compile(r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)(?!\d)")
_LONG: Mapping[str | None, Raw] = {"12h": Raw(b'{"type":"ephemeral","ttl":"1h"}')}
_SHORT = Raw(b'{"type":"ephemeral"}')

_messages = msgspec.json.Decoder(list[dict[str, Raw]])
_parts = msgspec.json.Decoder(list[dict[str, Raw]])
_encode = msgspec.json.Encoder().encode


def taken(request: ChatRequest, target: Target, style: Marks) -> frozenset[str]:
    """The marks that reach the server, by their names in the request."""
    if style == "anthropic":
        return MARKS
    if style == "openai":
        return MARKS if _EXPLICIT.match(target.model) else _OWN_WORD
    if style == "none" or (request.native is not None and request.native.dialect == MESSAGES):
        return _NONE
    return MARKS


def with_marks(request: ChatRequest, raw: Raw, target: Target, style: Marks) -> Raw:
    """The messages of `raw` with their marks in the server's word, and without those that it does not take."""
    found = marked_parts(request.messages)
    if style == "as_sent" or not found:
        return raw
    kept = taken(request, target, style)
    first = len(found) - MOST_MARKS if style == "anthropic" else 0
    messages = _messages.decode(raw)
    for number, (message, position) in enumerate(found):
        content = request.messages[message].content
        assert isinstance(content, list)
        part = content[position]
        assert isinstance(part, CachedPart)
        mark = _written(part, style, kept) if number >= first else None
        _write(messages[message], position, mark)
    return Raw(_encode(messages))


def _written(part: CachedPart, style: Marks, kept: frozenset[str]) -> tuple[str, Raw] | None:
    """The name and the value of a part's mark; None if it is left out."""
    own = part.prompt_cache_breakpoint
    if (OPENAI_MARK if own is not None else ANTHROPIC_MARK) not in kept:
        return None
    if style == "anthropic" and own is None and part.cache_control is not UNSET:
        return ANTHROPIC_MARK, part.cache_control
    breakpoint = part.cache_breakpoint
    if breakpoint is None:
        return None
    if style == "anthropic":
        return ANTHROPIC_MARK, _LONG.get(breakpoint.ttl, _SHORT)
    return OPENAI_MARK, _openai_value(breakpoint)


def _openai_value(breakpoint: CacheBreakpoint) -> Raw:
    ttl = {} if breakpoint.ttl is None else {"ttl": breakpoint.ttl}
    return Raw(_encode({"mode": breakpoint.mode, **ttl}))


def _write(message: dict[str, Raw], position: int, mark: tuple[str, Raw] | None) -> None:
    content = message["content"]
    if not bytes(content).lstrip().startswith(b"["):  # a text, whose mark came in another dialect
        if mark is not None:
            message["content"] = Raw(b'[{"type":"text","text":%b,"%b":%b}]' % (content, mark[0].encode(), mark[1]))
        return
    parts = _parts.decode(content)
    for name in MARKS:
        parts[position].pop(name, None)
    if mark is not None:
        parts[position][mark[0]] = mark[1]
    message["content"] = Raw(_encode(parts))

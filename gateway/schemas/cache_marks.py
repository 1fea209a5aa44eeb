"""Where a chat request has marks for the prompt cache on parts of its messages, and in whose words."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from gateway.schemas.chat_messages import CachedPart, Message

OPENAI_MARK, ANTHROPIC_MARK = "prompt_cache_breakpoint", "cache_control"
MARKS = frozenset({OPENAI_MARK, ANTHROPIC_MARK})


def marked_parts(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """The positions of the message and the part of each mark, in order."""
    return [
        (at, position)
        for at, message in enumerate(messages)
        if isinstance(message.content, list)
        for position, part in enumerate(message.content)
        if isinstance(part, CachedPart)
        and (part.prompt_cache_breakpoint is not None or part.cache_control is not UNSET)
    ]


def marks_in(messages: Sequence[Message]) -> frozenset[str]:
    """The names of the marks."""
    found = set()
    for at, position in marked_parts(messages):
        content = messages[at].content
        assert isinstance(content, list)
        part = content[position]
        assert isinstance(part, CachedPart)
        found.add(ANTHROPIC_MARK if part.prompt_cache_breakpoint is None else OPENAI_MARK)
    return frozenset(found)

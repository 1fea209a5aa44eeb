"""Removes from a request what clients send for "not used": empty lists, and nulls.

LangChain, LibreChat and Open WebUI send `"tools": []` or `"stop": []`. OpenAI refuses an empty `tools`, and a null for
it. Fields that need tools go with them, as OpenAI refuses those, too. A request without any of this is not copied.
Sharp edge: an empty list of an unknown field is passed on, because it may mean something. `transforms: []` switches a
default off at OpenRouter.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from gateway.schemas.request_fields import NULL, RequestFields

#: The optional fields that are, or may be, a list; each with the fields that mean nothing without it.
LISTS: Mapping[str, tuple[str, ...]] = {
    "tools": ("tool_choice", "parallel_tool_calls"),
    "functions": ("function_call",),
    "stop": (),
    "modalities": (),
}

#: These, and the fields that need one of them. Most requests have none.
CONCERNED = frozenset(LISTS).union(*LISTS.values())
_NOTHING_ASKED = ("auto", "none", True, False)
_messages = msgspec.json.Decoder(list[dict[str, Raw]])


def drop_empty_fields(request: RequestFields, fields: dict[str, Raw]) -> None:
    """Remove empty lists from the request and its table, and nulls from the table."""
    if not CONCERNED.isdisjoint(fields):
        _drop_lists(request, fields)
    if NULL in fields.values():
        drop_nulls(fields)


def _drop_lists(request: RequestFields, fields: dict[str, Raw]) -> None:
    """Remove empty lists from the request; the table gets a null in place of one."""
    for name, needing in LISTS.items():
        value = getattr(request, name)
        if value == []:
            value = None
            setattr(request, name, None)
            fields[name] = NULL
        if value is None:
            for other in needing:
                chosen = getattr(request, other)
                # Without the list, only a choice that asks for nothing is left out; any other one is an error.
                if chosen is not None and (name in fields or chosen in _NOTHING_ASKED):
                    setattr(request, other, None)
                    del fields[other]


def drop_nulls(fields: dict[str, Raw]) -> None:
    """Remove nulls from the table of the fields of a request, known or not."""
    for name in [name for name, raw in fields.items() if raw == NULL]:
        del fields[name]


def without_empty_calls(messages: Raw) -> Raw:
    """The messages without empty lists of tool calls, which OpenAI refuses."""
    table = _messages.decode(messages)
    for message in table:
        calls = message.get("tool_calls")
        if calls is not None and bytes(calls).strip(b"[] \t\r\n") == b"":
            del message["tool_calls"]
    return Raw(msgspec.json.encode(table))

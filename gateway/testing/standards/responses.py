"""The part of a Responses answer for which the Open Responses standard has a class.

OpenAI's API has more kinds of tools and items (custom tools, tools that it runs, images), which the standard leaves to
its implementors. These are taken out before the rest is read; so is the schema of a text format, which the document of
the standard says to be null.
"""

from __future__ import annotations

from typing import Any

import msgspec

ITEMS = frozenset({"message", "function_call", "function_call_output", "reasoning", "compaction"})
TOOLS = frozenset({"function"})


def standard_part(document: dict[str, Any]) -> bytes | None:
    """The document of a response or of an event, which is changed; None for an event about an item of another kind."""
    item = document.get("item")
    if isinstance(item, dict) and item.get("type") not in ITEMS:
        return None
    response = document.get("response") if "sequence_number" in document else document
    if isinstance(response, dict):
        _reduce(response)
    return msgspec.json.encode(document)


def _reduce(response: dict[str, Any]) -> None:
    for name, kinds in (("output", ITEMS), ("tools", TOOLS)):
        found = response.get(name)
        if isinstance(found, list):
            response[name] = [one for one in found if not isinstance(one, dict) or one.get("type") in kinds]
    text = response.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict) and "schema" in form:
        form["schema"] = None

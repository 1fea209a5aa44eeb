"""Tool calls and their results one to one, for dialects that demand it: Anthropic, Bedrock, Gemini.

Histories of other models use an id again in each turn (`call_0`), have empty ids, or answer a call twice. In
`one_result_each(messages)` each call has an id of its own, results follow it, and a second result of a call is added to
its first. Sharp edge: new ids depend on positions only, so that the same history is always the same prompt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from gateway.schemas.chat_messages import (
    AssistantMessage,
    DeveloperMessage,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)

PlainMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class Placed(Struct, frozen=True):
    """A message and its position in the caller's `messages`."""

    position: int
    message: PlainMessage

    @property
    def path(self) -> str:
        """The beginning of an error's `param`."""
        return f"messages[{self.position}]"


def one_result_each(messages: Iterable[Placed]) -> list[Placed]:
    """The messages with unique ids of calls, and one result for each; the caller's messages are not changed."""
    messages = list(messages)
    return messages if _are_one_to_one(messages) else _made_one_to_one(messages)


def _are_one_to_one(messages: Sequence[Placed]) -> bool:
    """Whether nothing is to be done, as for nearly all histories: 4 µs for twenty calls."""
    calls: list[str] = []
    results: list[str] = []
    for placed in messages:
        message = placed.message
        if type(message) is AssistantMessage:
            if message.tool_calls:
                calls += [call.id for call in message.tool_calls]
        elif type(message) is ToolMessage:
            results.append(message.tool_call_id)
    ids = set(calls)
    return len(ids) == len(calls) and len(set(results)) == len(results) and "" not in ids


def _made_one_to_one(messages: Iterable[Placed]) -> list[Placed]:
    out: list[Placed] = []
    used: set[str] = set()
    waiting: dict[str, deque[str]] = {}  # the caller's id → our ids of the calls without a result
    answered: dict[str, int] = {}  # the caller's id → where its newest result is in `out`
    for placed in messages:
        message = placed.message
        if isinstance(message, AssistantMessage) and message.tool_calls:
            placed = _with_own_ids(placed, message, used, waiting)
        elif isinstance(message, ToolMessage):
            id = message.tool_call_id
            if waiting.get(id):
                answered[id] = len(out)
                placed = _answering(placed, message, waiting[id].popleft())
            elif id in answered:
                _add_result(out, answered[id], message)
                continue
        out.append(placed)
    return out


def _with_own_ids(placed: Placed, message: AssistantMessage, used: set[str], waiting: dict[str, deque[str]]) -> Placed:
    calls = list(message.tool_calls or ())
    for call in calls:
        waiting[call.id] = deque()
    changed = False
    for position, call in enumerate(calls):
        id = call.id
        if not id or id in used:
            id = f"{id or 'call'}_{placed.position}_{position}"
            calls[position] = msgspec.structs.replace(call, id=id)
            changed = True
        used.add(id)
        waiting[call.id].append(id)
    return Placed(placed.position, msgspec.structs.replace(message, tool_calls=calls)) if changed else placed


def _answering(placed: Placed, message: ToolMessage, id: str) -> Placed:
    if id == message.tool_call_id:
        return placed
    return Placed(placed.position, msgspec.structs.replace(message, tool_call_id=id))


def _add_result(out: list[Placed], position: int, message: ToolMessage) -> None:
    first = out[position]
    assert isinstance(first.message, ToolMessage)
    content = [*text_parts(first.message.content), *text_parts(message.content)]
    out[position] = Placed(first.position, msgspec.structs.replace(first.message, content=content))


def text_parts(content: str | Sequence[object] | None) -> list[TextPart]:
    """The texts of a message's content without empty ones, because dialects refuse an empty block."""
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    return [part for part in content or () if isinstance(part, TextPart) and part.text]

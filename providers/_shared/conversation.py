"""A conversation for dialects whose turns must alternate: Anthropic, Bedrock, Gemini.

`conversation(messages)` separates the leading instructions from the turns, merges messages of one side into one turn,
puts tool results first in it, and writes legacy function calls as tool calls. Later instructions become part of the
user's turn at their position. Each message keeps its position, so that an error can name its path. Each call gets an id
of its own and at most one result, as these dialects demand. Sharp edge: no message is inserted to make a history valid;
`check_user_first` refuses one that does not begin with the user.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.errors import InvalidValue
from gateway.schemas.chat_messages import (
    AssistantMessage,
    DeveloperMessage,
    FunctionMessage,
    FunctionToolCall,
    Message,
    SystemMessage,
    ToolMessage,
)

from .call_results import Placed as Placed
from .call_results import one_result_each
from .call_results import text_parts as text_parts

_NARROW_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Turn(Struct):
    """Consecutive messages of one side; a user's turn also has tool results and later instructions."""

    role: Literal["user", "assistant"]
    messages: list[Placed]


class Conversation(Struct):
    """Instructions before the first turn, and the turns, which alternate."""

    system: list[Placed]
    turns: list[Turn]


def conversation(messages: Sequence[Message]) -> Conversation:
    """The conversation in `messages`; neither they nor their list are changed."""
    system: list[Placed] = []
    turns: list[Turn] = []
    for placed in one_result_each(_plain(messages)):
        if not turns and isinstance(placed.message, SystemMessage | DeveloperMessage):
            system.append(placed)
            continue
        role: Literal["user", "assistant"] = "assistant" if isinstance(placed.message, AssistantMessage) else "user"
        if not turns or turns[-1].role != role:
            turns.append(Turn(role, []))
        turns[-1].messages.append(placed)
    for turn in turns:
        if len(turn.messages) > 1:  # results must follow their calls at once
            turn.messages.sort(key=lambda placed: not isinstance(placed.message, ToolMessage))
    return Conversation(system, turns)


def check_user_first(talk: Conversation) -> None:
    """Refuse a conversation whose first turn is not the user's."""
    if not talk.turns:
        raise InvalidValue("Invalid 'messages': this model needs at least one user message.", param="messages")
    first = talk.turns[0]
    if first.role != "user":
        param = f"{first.messages[0].path}.role"
        raise InvalidValue(f"Invalid '{param}': this model needs a user message first.", param=param)


def joined_text(content: str | Sequence[object] | None) -> str:
    """The texts of a message's content as one text."""
    return content if isinstance(content, str) else "".join(part.text for part in text_parts(content))


def narrow_id(id: str) -> str:
    """A tool call's id of at most 64 letters, digits, `_` and `-`; equal ids give equal results."""
    if _NARROW_ID.fullmatch(id):
        return id
    return f"call_{hashlib.sha256(id.encode()).hexdigest()[:24]}"


def arguments_object(arguments: str) -> Raw:
    """The text of a call's arguments as undecoded JSON of an object.

    Arguments that were cut, or are no object, are wrapped, as Anthropic's documentation asks for: they are history, and
    a refusal would end the conversation for good.
    """
    text = arguments.strip() or "{}"
    try:
        value = msgspec.json.decode(text)
        if isinstance(value, str):  # encoded twice
            text, value = value, msgspec.json.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        return Raw(text.encode())
    return Raw(b"{}" if value is None else msgspec.json.encode({"invalid_json": arguments}))


def _plain(messages: Sequence[Message]) -> Iterable[Placed]:
    """The messages with legacy function calls and their results written as tool calls."""
    called: dict[str, str] = {}  # function → id of its newest call
    for position, message in enumerate(messages):
        if isinstance(message, FunctionMessage):
            yield Placed(position, _as_result(message, called, position))
        elif isinstance(message, AssistantMessage) and message.function_call is not None:
            id = called[message.function_call.name] = f"call_legacy_{position}"
            call = FunctionToolCall(id, message.function_call, UNSET)
            calls = [*(message.tool_calls or ()), call]
            yield Placed(position, msgspec.structs.replace(message, tool_calls=calls, function_call=None))
        else:
            yield Placed(position, message)


def _as_result(message: FunctionMessage, called: dict[str, str], position: int) -> ToolMessage:
    if message.name not in called:
        param = f"messages[{position}].name"
        raise InvalidValue(f"Invalid '{param}': no earlier assistant message called this function.", param=param)
    return ToolMessage(message.content or "", called[message.name])

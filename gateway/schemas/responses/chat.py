"""Writes a Responses request as a chat request: the items become messages, the options chat's fields."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.schemas.chat_options import JSONObjectFormat
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.duplicate_keys import Examined, own_request
from gateway.schemas.forbidden import header_name
from gateway.schemas.responses.compaction import INSTRUCTION
from gateway.schemas.responses.items import Item
from gateway.schemas.responses.messages import Conversation
from gateway.schemas.responses.options import TextSchemaFormat
from gateway.schemas.responses.request import ResponsesRequest
from gateway.schemas.responses.tools import ToolSet

#: Fields with the same name and form in both dialects.
SAME = (
    "model", "stream", "temperature", "top_p", "prompt_cache_key", "safety_identifier", "user", "metadata",
    "moderation",
)  # fmt: skip
_TIERS = frozenset({None, "ultrafast"})  # no price of a chat request covers the second


class Translated(Struct, frozen=True):
    """A request as a chat request."""

    document: Examined
    left_out: list[str]  # names of what has no place in it


def translated(
    asked: ResponsesRequest, items: list[Item], tools: ToolSet, fields: dict[str, Raw], *, compacts: bool = False
) -> Translated:
    """The request as a chat request, or as one for a summary; raises BadRequest with the exact param."""
    conversation = Conversation(asked.model, tools)
    if asked.instructions is not None:
        conversation.add_system("system", asked.instructions)
    if isinstance(asked.input, str):
        conversation.add_user(asked.input)
    else:
        for index, item in enumerate(items):
            conversation.add(item, f"input[{index}]")
    chat: dict[str, Any] = {name: fields[name] for name in SAME if name in fields}
    if compacts:
        conversation.add_user(INSTRUCTION)
    chat["messages"] = conversation.end()
    left_out = [f"input[{kind}]" for kind in sorted(conversation.left_out)]
    left_out += _add_unknown(chat, asked, fields)
    _add_options(chat, asked)
    _add_tools(chat, asked, tools)
    if compacts:
        chat.pop("response_format", None)
        if "tools" in chat:  # which stay: they are the beginning of the cached prompt
            chat["tool_choice"] = "none"
    return Translated(own_request(chat), left_out)


def _add_unknown(chat: dict[str, Any], asked: ResponsesRequest, fields: dict[str, Raw]) -> list[str]:
    """Pass unknown fields on; returns the names of those that would mean something else in a chat request."""
    unknown = [name for name in fields if name not in asked.field_classes]
    chat.update({name: fields[name] for name in unknown if name not in ChatRequest.field_classes})
    left_out = [header_name(name) for name in unknown if name in ChatRequest.field_classes]
    return left_out + (["service_tier"] if asked.service_tier == "ultrafast" else [])


def _add_options(chat: dict[str, Any], asked: ResponsesRequest) -> None:
    if asked.max_output_tokens is not None:
        chat["max_completion_tokens"] = asked.max_output_tokens
    if asked.stream and asked.stream_options is not None and asked.stream_options.include_obfuscation is not None:
        chat["stream_options"] = {"include_obfuscation": asked.stream_options.include_obfuscation}
    if asked.service_tier not in _TIERS:
        chat["service_tier"] = asked.service_tier
    if asked.reasoning is not None and asked.reasoning.effort is not None:
        chat["reasoning_effort"] = asked.reasoning.effort
    if asked.top_logprobs is not None or asked.wants("message.output_text.logprobs"):
        chat["logprobs"] = True
        if asked.top_logprobs is not None:
            chat["top_logprobs"] = asked.top_logprobs
    if asked.prompt_cache_options is not None:
        options = asked.prompt_cache_options
        chosen = {"mode": options.mode, "ttl": options.ttl}
        chat["prompt_cache_options"] = {name: value for name, value in chosen.items() if value is not None}
    if asked.prompt_cache_retention is not None:
        chat["prompt_cache_retention"] = asked.prompt_cache_retention.replace("-", "_")
    _add_text(chat, asked)


def _add_text(chat: dict[str, Any], asked: ResponsesRequest) -> None:
    if asked.text is None:
        return
    if asked.text.verbosity is not None:
        chat["verbosity"] = asked.text.verbosity
    form = asked.text.format
    if isinstance(form, JSONObjectFormat):
        chat["response_format"] = {"type": "json_object"}
    elif isinstance(form, TextSchemaFormat):
        named = ("name", "schema", "description", "strict")
        values = {name: getattr(form, name) for name in named}
        schema = {name: value for name, value in values.items() if value is not None and value is not msgspec.UNSET}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}


def _add_tools(chat: dict[str, Any], asked: ResponsesRequest, tools: ToolSet) -> None:
    if not tools.tools:
        return
    chat["tools"] = tools.tools
    if tools.choice is not None:
        chat["tool_choice"] = tools.choice
    if asked.parallel_tool_calls is not None:
        chat["parallel_tool_calls"] = asked.parallel_tool_calls

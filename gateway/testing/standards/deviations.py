"""Where answers differ from the standards on purpose; docs/dialects.md has each with its reason."""

from __future__ import annotations

import re

from msgspec import Struct


class Deviation(Struct, frozen=True):
    """Members of answers of a dialect; `pattern` is found in the text of a fault."""

    dialect: str
    pattern: str
    members: str
    reason: str


DEVIATIONS = (
    Deviation(
        "responses",
        r"input_tokens_details\.cache_write_tokens: unknown member$",
        "`usage.input_tokens_details.cache_write_tokens`",
        "OpenAI's own API has it, and cache writes have a price of their own.",
    ),
    Deviation(
        "responses",
        r"function_call_arguments\.done: (name|namespace): unknown member$",
        "`name` of `response.function_call_arguments.done`",
        "OpenAI's own API has it, and Codex reads it.",
    ),
    Deviation(
        "responses",
        r"item\.status: unknown member$",
        "`status` of a reasoning item",
        "OpenAI's own API has it; such items are passed on as they came.",
    ),
    Deviation(
        "responses",
        r"(^|: |response\.)user: unknown member$",
        "`user`",
        "It is repeated if it was sent, as OpenAI does.",
    ),
    Deviation(
        "responses",
        r"\.namespace: unknown member$",
        "`namespace` of a call or of a tool choice",
        "OpenAI's own API has it, and Codex offers tools in namespaces.",
    ),
    Deviation(
        "chat",
        r"(message|delta)\.images: unknown member$",
        "`images` of a message",
        "Chat completions have no place for generated images; OpenRouter and LiteLLM use this.",
    ),
    Deviation(
        "chat",
        r"usage\.\w+_details\.(cache_write_tokens_details|image_tokens): unknown member$",
        "`cache_write_tokens_details` and `image_tokens` of a usage",
        "These tokens have prices of their own.",
    ),
    Deviation(
        "chat",
        r"delta\.tool_calls\.\d+\.type: Input should be 'function'$",
        "`custom` as the type of a call in a chunk",
        "OpenAI's document has custom tools in whole answers only, and sends their calls in chunks, too.",
    ),
    Deviation(
        "chat",
        r"(message|delta)\.(reasoning_content|reasoning_details|thinking_blocks): unknown member$",
        "`reasoning_content`, `reasoning_details` and `thinking_blocks` of a message",
        "Chat completions have no place for reasoning; DeepSeek, vLLM, OpenRouter and LiteLLM use these.",
    ),
    Deviation(
        "chat",
        r"tool_calls\[\d+\]\.extra_content: unknown member$",
        "`extra_content` of a tool call",
        "Google's compatible API carries the signature of a thought in it.",
    ),
)


def is_known(dialect: str, fault: str) -> bool:
    """Whether a fault is one of the deviations."""
    return any(one.dialect == dialect and re.search(one.pattern, fault) is not None for one in DEVIATIONS)

"""Where answers differ from the standards on purpose; docs/dialects.md has each with its reason."""

from __future__ import annotations

import re

from msgspec import Struct


class Deviation(Struct, frozen=True):
    """Members of answers of some dialects; `pattern` is found in the text of a fault."""

    dialects: tuple[str, ...]
    pattern: str
    members: str
    reason: str


DEVIATIONS = (
    Deviation(
        ("responses", "compactions"),
        r"input_tokens_details\.cache_write_tokens: unknown member$",
        "`usage.input_tokens_details.cache_write_tokens`",
        "OpenAI's own API has it, and cache writes have a price of their own.",
    ),
    Deviation(
        ("responses", "models"),
        r"(function_call_arguments\.done: (name|namespace)|\.namespace|^error: headers|^models): unknown member$",
        "`name` of `response.function_call_arguments.done`; `namespace` of a call or of a tool choice; `headers` of an "
        "error on a WebSocket; `models` beside the list of models",
        "OpenAI's own API has them, and Codex reads them.",
    ),
    Deviation(
        ("responses",),
        r"item\.status: unknown member$",
        "`status` of a reasoning item",
        "OpenAI's own API has it; such items are passed on as they came.",
    ),
    Deviation(
        ("responses",),
        r"(^|: |response\.)user: unknown member$",
        "`user`",
        "It is repeated if it was sent, as OpenAI does.",
    ),
    Deviation(
        ("chat", "images"),
        r"((message|delta)\.images|completed: url): unknown member$",
        "`images` of a message; `url` of a streamed image",
        "Chat completions have no place for generated images, and streams of images none for an address, which some "
        "upstreams give alone; OpenRouter and LiteLLM use the former.",
    ),
    Deviation(
        ("chat",),
        r"usage\.\w+_details\.(cache_write_tokens_details|image_tokens): unknown member$",
        "`cache_write_tokens_details` and `image_tokens` of a usage",
        "These tokens have prices of their own.",
    ),
    Deviation(
        ("chat",),
        r"delta\.tool_calls\.\d+\.type: Input should be 'function'$",
        "`custom` as the type of a call in a chunk",
        "OpenAI's document has custom tools in whole answers only, and sends their calls in chunks, too.",
    ),
    Deviation(
        ("chat",),
        r"((message|delta)\.(reasoning_content|reasoning_details|thinking_blocks)|tool_calls\[\d+\]\.extra_content)"
        r": unknown member$",
        "`reasoning_content`, `reasoning_details` and `thinking_blocks` of a message; `extra_content` of a tool call",
        "Chat completions have no place for reasoning and its signatures; DeepSeek, vLLM, OpenRouter and LiteLLM use "
        "the former, Google's compatible API the latter.",
    ),
    Deviation(
        ("transcriptions",),
        r"^task: unknown member\Z",
        "`task` of a verbose transcription",
        "OpenAI's own answers have it.",
    ),
    Deviation(
        ("models", "model"),
        r"(^|data\[\d+\]\.)(endpoints|context_window|max_output_tokens|later_prices)(\.|\[|: )",
        "`endpoints`, `context_window`, `max_output_tokens` and `later_prices` of a model",
        "Programs choose a model by them; OpenAI's document has nothing like them.",
    ),
)


def is_known(dialect: str, fault: str) -> bool:
    """Whether a fault is one of the deviations."""
    return any(dialect in one.dialects and re.search(one.pattern, fault) is not None for one in DEVIATIONS)

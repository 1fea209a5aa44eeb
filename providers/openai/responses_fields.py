"""What servers take of a Responses request, as data (docs/providers/openai.md, "Responses").

A field or a tool that a server does not take would fail the whole request there; it is left out and named to the caller
instead. A vendor is a row of this table, and an operator may write another one into the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway import AcceptedFields

from .server import SharedOptions

#: Fields that every server of the dialect takes; the gateway itself writes some of them.
CORE = frozenset({
    "model", "input", "instructions", "stream", "stream_options", "store", "background", "max_output_tokens",
    "temperature", "top_p", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning",
})  # fmt: skip
#: Tools that cost no more than their tokens and reach nothing but what the request names, and namespaces of functions.
#: The price of a model covers a web search. Tools that read what the operator has stored, or that are charged
#: otherwise (`file_search`, `code_interpreter`, `image_generation`, containers), are for the operator to allow.
SAFE_TOOLS = frozenset({
    "namespace", "web_search", "web_search_preview", "local_shell", "apply_patch", "computer", "computer_use_preview",
    "tool_search", "mcp",
})  # fmt: skip


#: Not a tool: the server compacts a conversation (docs/api.md, "POST /v1/responses/compact").
COMPACTION = "compaction"


class Support(Struct, frozen=True):
    """The support of one kind of server."""

    accepted: AcceptedFields
    on: bool = False  # without `responses = true`


def _row(*more: str, tools: frozenset[str] = frozenset(), on: bool = False) -> Support:
    return Support(AcceptedFields(CORE.union(more), tools=tools), on)


OPENAI = _row(
    "include", "max_tool_calls", "top_logprobs", "truncation", "service_tier", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user", "metadata", "moderation",
    tools=SAFE_TOOLS | {COMPACTION}, on=True,
)  # fmt: skip
AZURE = _row(
    "include", "max_tool_calls", "top_logprobs", "truncation", "service_tier", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user", "metadata",
    tools=SAFE_TOOLS - {"web_search", "tool_search"}, on=True,
)  # fmt: skip

#: By preset; one that is not here has no Responses API.
PRESETS: Mapping[str, Support] = {
    "groq": _row("metadata", "truncation", "user", "service_tier", tools=frozenset({"mcp"})),
    "xai": _row(
        "include", "top_logprobs", "prompt_cache_key", "user", "metadata", tools=frozenset({"web_search", "mcp"}),
    ),
    "openrouter": _row(
        "include", "top_logprobs", "truncation", "service_tier", "prompt_cache_key", "prompt_cache_options",
        "safety_identifier", "user", "metadata", "max_tool_calls",
    ),
    "vllm": _row("include", "top_logprobs", "truncation", "metadata", "user", "max_tool_calls"),
    "llamacpp": _row("metadata"),
    "ollama": _row("truncation"),
}  # fmt: skip
#: A server of which nothing is known: only where the options switch it on.
NONE = Support(AcceptedFields(OPENAI.accepted.fields, tools=SAFE_TOOLS))


def accepted_by(options: SharedOptions, support: Support) -> AcceptedFields | None:
    """What a server takes, by its options; None where the dialect is off."""
    if not (support.on if options.responses is None else options.responses):
        return None
    fields, tools = options.responses_fields, options.responses_tools
    return AcceptedFields(
        support.accepted.fields if fields is None else CORE.union(fields),
        tools=support.accepted.tools if tools is None else frozenset(tools),
    )

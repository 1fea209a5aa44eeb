"""What Anthropic takes of a Messages request, as data (docs/providers/anthropic.md, "Messages requests").

A field or a flag that an upstream does not take would fail the whole request there; it is left out and named to the
caller instead. Not in the table is also what would cost more than the price of the model says, or would reach what
belongs to the operator: `speed`, `inference_geo`, containers, files, MCP servers, workspaces.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from gateway import AcceptedFields

from .models import ModelTraits

#: Fields of every upstream of the dialect.
CORE = frozenset({
    "system", "messages", "stop_sequences", "temperature", "top_p", "top_k", "tools", "tool_choice", "thinking",
    "output_config",
})  # fmt: skip
#: Tools that cost no more than their tokens. The price of a model covers a web search.
TOOLS = frozenset({"bash_*", "text_editor_*", "computer_*", "memory_*", "tool_search_tool_*", "web_search_*"})

#: Flags are known by their families, because the programs of Anthropic send newer dates with each release.
ACCEPTED = AcceptedFields(
    CORE | {
        "metadata", "service_tier", "cache_control", "compaction", "context_management", "diagnostics", "output_format",
    },
    frozenset({
        "adaptive-thinking-20*", "advanced-tool-use-20*", "claude-code-20*", "compact-20*", "computer-use-20*",
        "context-1m-20*", "context-management-20*", "effort-20*", "extended-cache-ttl-20*",
        "fine-grained-tool-streaming-20*", "interleaved-thinking-20*", "mid-conversation-system-20*",
        "output-128k-20*", "pdfs-20*", "prompt-caching-20*", "prompt-caching-scope-20*", "redact-thinking-20*",
        "search-results-20*", "structured-outputs-20*", "thinking-token-count-20*", "token-counting-20*",
        "token-efficient-tools-20*", "tool-examples-20*", "tool-search-tool-20*",
    }),
    TOOLS,
)  # fmt: skip

#: What Vertex AI takes. A flag that it does not know fails the request; so does `cache_control` beside the messages.
VERTEX = AcceptedFields(
    CORE | {"metadata", "context_management"},
    frozenset({
        "advanced-tool-use-2025-11-20", "compact-2026-01-12", "computer-use-2025-01-24", "computer-use-2025-11-24",
        "context-1m-2025-08-07", "context-management-2025-06-27", "interleaved-thinking-2025-05-14",
        "tool-search-tool-2025-10-19", "web-search-2025-03-05",
    }),
    TOOLS,
)  # fmt: skip

#: Sampling fields of a chat request, and of a Messages request.
CHAT_SAMPLING = frozenset({"temperature", "top_p"})
SAMPLING = CHAT_SAMPLING | {"top_k"}


def accepted_by_model(accepted: AcceptedFields, traits: ModelTraits) -> AcceptedFields:
    """The table without what this model does not take."""
    lacking = frozenset() if traits.sampling else SAMPLING
    lacking |= {"thinking"} if traits.thinking_mode == "none" else frozenset()
    return structs.replace(accepted, fields=accepted.fields - lacking) if lacking else accepted


#: The flag that a field needs; it is added if the caller sends none of its family.
NEEDED: Mapping[str, str] = {
    "compaction": "compact-2026-09-04",
    "context_management": "context-management-2025-06-27",
    "output_format": "structured-outputs-2025-11-13",
    "mcp_servers": "mcp-client-2025-11-20",
    "speed": "fast-mode-2026-02-01",
}
#: The flag that a message with the role `system` needs.
SYSTEM_TURNS = "mid-conversation-system-2026-04-07"
#: The flag that the `scope` of a cache breakpoint needs.
CACHE_SCOPE = "prompt-caching-scope-2026-01-05"

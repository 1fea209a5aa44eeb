"""What Claude models on Bedrock take of a Messages request, as data (docs/providers/bedrock.md, "Messages requests").

Bedrock answers 400 to a field or a flag that it does not know, so these are left out and named to the caller. Flags of
features that need none there are not in the list: some models refuse them.
"""

from __future__ import annotations

from gateway import AcceptedFields

from ..anthropic.accepted import CORE, TOOLS

ACCEPTED = AcceptedFields(
    CORE | {"context_management"},
    frozenset({
        "advanced-tool-use-2025-11-20", "compact-2026-01-12", "computer-use-2025-01-24", "computer-use-2025-11-24",
        "context-1m-2025-08-07", "context-management-2025-06-27", "fine-grained-tool-streaming-2025-05-14",
        "interleaved-thinking-2025-05-14", "tool-examples-2025-10-29", "tool-search-tool-2025-10-19",
    }),
    TOOLS - {"web_search_*"},
)  # fmt: skip

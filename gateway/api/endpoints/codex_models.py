"""The catalogue that Codex reads: `GET /v1/models?client_version=…` (docs/api.md, "GET /v1/models").

Codex knows OpenAI's models itself; an entry for one of them would replace what it knows. For any other name it assumes
a window, and compacts a conversation too late or too early. So a model is listed if its window is configured and its
name is not OpenAI's. Codex takes an entry with all of these members only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from gateway.catalog import Model, ModelRecord
from gateway.routing.hidden_reasoning import may_reason

#: Names of models that Codex knows.
KNOWN = re.compile(r"(?:gpt-|o\d|codex)")
EFFORTS = {"low": "Short reasoning", "medium": "Balanced", "high": "Long reasoning"}
TRUNCATED_AFTER = 10_000  # tokens of a tool's output
INSTRUCTIONS = """\
You are a coding agent. You work in the user's terminal, on the files of the working directory, through the tools that \
you are given.

- Look before you change: read the files that matter, and the instructions that the project has for agents.
- Do what was asked, completely, and nothing else. Keep the style of the code around it.
- Change files with the tool for patches. Leave changes that are not yours as they are.
- Run the tests or the program to see that a change works. Say so if you could not.
- Do not delete data, rewrite history or commit, unless the user asks for it.
- Call tools until the task is done. Then answer in a few sentences: what you changed, where, and what is open.
"""


def asks_for_codex(target: str) -> bool:
    """Whether the target of a request has the query that Codex sends."""
    return bool(parse_qs(target.partition("?")[2]).get("client_version"))


def codex_models(records: Sequence[tuple[ModelRecord, Model]]) -> list[dict[str, Any]]:
    """The entries of the models that Codex does not know, and whose window is configured."""
    listed = [
        (record, model)
        for record, model in records
        if record.context_window and "chat" in record.endpoints and not KNOWN.match(record.id)
    ]
    return [_entry(record, model, priority) for priority, (record, model) in enumerate(listed)]


def _entry(record: ModelRecord, model: Model, priority: int) -> dict[str, Any]:
    reasons = model.reasoning
    if reasons is None:
        reasons = any(may_reason(one.target.model) for one in model.targets)
    efforts = [{"effort": effort, "description": text} for effort, text in EFFORTS.items()] if reasons else []
    return {
        "slug": record.id,
        "display_name": record.id,
        "description": None,
        "default_reasoning_level": "medium" if reasons else None,
        "supported_reasoning_levels": efforts,
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "upgrade": None,
        "base_instructions": INSTRUCTIONS,
        "supports_reasoning_summaries": reasons,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "truncation_policy": {"mode": "tokens", "limit": TRUNCATED_AFTER},
        "supports_parallel_tool_calls": True,
        "context_window": record.context_window,
        "experimental_supported_tools": [],
    }

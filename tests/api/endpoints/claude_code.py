"""A request as Claude Code 2.1 sends it, recorded on 2026-11-26, with shorter texts."""

from __future__ import annotations

from typing import Any

EPHEMERAL = {"type": "ephemeral"}
HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,thinking-token-count-2026-05-13,"
    "context-management-2025-06-27,prompt-caching-scope-2026-01-05,mid-conversation-system-2026-04-07,"
    "effort-2025-11-24",
    "x-app": "cli",
}


def tool(name: str) -> dict[str, Any]:
    """One of its 24 tools."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"file_path": {"description": "The path", "type": "string"}, "limit": {"type": "number"}},
        "required": ["file_path"],
        "additionalProperties": False,
    }
    return {"name": name, "description": f"{name} a file.", "input_schema": schema}


REQUEST: dict[str, Any] = {
    "model": "m1",
    "max_tokens": 32_000,
    "stream": True,
    "system": [
        {"type": "text", "text": "x-billing: cc_version=2.1"},
        {"type": "text", "text": "You are Claude Code.", "cache_control": EPHEMERAL},
        {"type": "text", "text": "Edit files.", "cache_control": EPHEMERAL},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Fix the test."}]},
        {"role": "system", "content": "The date is 2026-11-26."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I read it first.", "signature": "c2lnbmVk"},
                {"type": "text", "text": "I read the file."},
                {"type": "tool_use", "id": "call_abc-1", "name": "Read", "input": {"file_path": "/a.py"}},
                {"type": "tool_use", "id": "chatcmpl-tool-2", "name": "Read", "input": {"file_path": "/b.py"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_abc-1", "content": "assert 1 == 2"},
                {
                    "type": "tool_result",
                    "tool_use_id": "chatcmpl-tool-2",
                    "content": [{"type": "text", "text": "No such file"}],
                    "is_error": True,
                    "cache_control": EPHEMERAL,
                },
            ],
        },
    ],
    "tools": [tool(name) for name in ("Read", "Edit", "Bash")],
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"0b3c5f0e-7d1a-4a55-9d0e-1f1f0a8b2c11"}'},
}

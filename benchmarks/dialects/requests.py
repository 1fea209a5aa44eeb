"""The request of each dialect of callers: a short prompt, or one with the tools of an agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.load import PROMPT

Document = dict[str, Any]

TOOLS, TOOL_BYTES = 24, 1_700  # 40 KB in all, as coding agents send them
LIMIT = 400  # tokens


def http_request(dialect: str, model: str, *, stream: bool, tools: bool, headers: Mapping[str, str]) -> bytes:
    """The whole HTTP request."""
    path, document = _BODIES[dialect](model, stream=stream, tools=[_schema(number) for number in range(TOOLS * tools)])
    body = json.dumps(document).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def _schema(number: int) -> Document:
    """Name, description and parameters of a tool."""
    properties = {
        f"field_{place}": {"type": "string", "description": "What the tool takes here. " * 4, "minLength": 1}
        for place in range(8)
    }
    parameters = {"type": "object", "properties": properties, "required": ["field_0"], "additionalProperties": False}
    text = "Reads, writes or runs something in the folder of the project. "
    missing = TOOL_BYTES - len(json.dumps(parameters))
    return {"name": f"tool_{number}", "description": (text * 40)[: max(0, missing)], "parameters": parameters}


def _chat(model: str, *, stream: bool, tools: list[Document]) -> tuple[str, Document]:
    body = {"model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": LIMIT, "stream": stream}
    offered = [{"type": "function", "function": tool} for tool in tools]
    return "/v1/chat/completions", {**body, **({"tools": offered} if tools else {})}


def _responses(model: str, *, stream: bool, tools: list[Document]) -> tuple[str, Document]:
    turns = [{"role": "user", "content": [{"type": "input_text", "text": PROMPT}]}]
    body = {"model": model, "input": turns, "max_output_tokens": LIMIT, "stream": stream, "store": False}
    offered = [{"type": "function", "strict": False, **tool} for tool in tools]
    return "/v1/responses", {**body, **({"tools": offered} if tools else {})}


def _messages(model: str, *, stream: bool, tools: list[Document]) -> tuple[str, Document]:
    body = {"model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": LIMIT, "stream": stream}
    offered = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in tools
    ]
    return "/v1/messages", {**body, **({"tools": offered} if tools else {})}


def _gemini(model: str, *, stream: bool, tools: list[Document]) -> tuple[str, Document]:
    contents = [{"role": "user", "parts": [{"text": PROMPT}]}]
    body = {"contents": contents, "generationConfig": {"maxOutputTokens": LIMIT}}
    offered = [
        {"name": tool["name"], "description": tool["description"], "parametersJsonSchema": tool["parameters"]}
        for tool in tools
    ]
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/{model}:{verb}", {
        **body,
        **({"tools": [{"functionDeclarations": offered}]} if tools else {}),
    }


_BODIES = {"chat": _chat, "responses": _responses, "messages": _messages, "gemini": _gemini}

"""One request of each JSON endpoint with about every text that a caller may send, and a gateway that serves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import structs

from gateway.config.settings import Settings
from gateway.testing import FakeUpstream, Reply
from gateway.testing.reply import Seen
from tests.reports.endpoints import right_answer, settings_for
from tests.reports.test_bodies_unusual_chats import WHOLE

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # one pixel
IMAGE = f"data:image/png;base64,{PNG}"
SCHEMA = {
    "type": "object",
    "description": "Where",
    "properties": {"port": {"type": "string", "enum": ["Brest", "Roscoff"], "description": "A port"}},
    "required": ["port"],
    "$defs": {"x": {"type": "string", "pattern": "^a"}},
}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "rules"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "When?"}, {"type": "image_url", "image_url": {"url": IMAGE}}],
        },
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"port": "Brest"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "6:40"},
        {"role": "user", "content": "And tomorrow?", "name": "ann"},
    ],
    "tools": [{"type": "function", "function": {"name": "tide", "description": "High water", "parameters": SCHEMA}}],
    "tool_choice": {"type": "function", "function": {"name": "tide"}},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "description": "It", "schema": SCHEMA},
    },
    "stop": ["END", "\n\n"],
    "metadata": {"team": "search", "other": "x"},
    "user": "ann",
    "safety_identifier": "ann-1",
    "prompt_cache_key": "talk-1",
    "reasoning_effort": "low",
    "service_tier": "auto",
    "custom_field": {"a": ["b"]},
}
MESSAGES: dict[str, Any] = {
    "max_tokens": 64,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "When?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {"port": "x"}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "6:40"}]},
                {"type": "text", "text": "And tomorrow?"},
            ],
        },
    ],
    "tools": [{"name": "tide", "description": "High water", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "tide"},
    "stop_sequences": ["END"],
    "metadata": {"user_id": "user_1_account_2_session_00000000-0000-0000-0000-000000000000"},
    "custom_field": {"a": ["b"]},
}
RESPONSES: dict[str, Any] = {
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "When?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "tide", "arguments": '{"port": "x"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "6:40"},
        {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "6:40"}]},
        {"role": "user", "content": "And tomorrow?"},
    ],
    "tools": [
        {"type": "function", "name": "tide", "description": "High water", "parameters": SCHEMA},
        {"type": "custom", "name": "patch", "description": "A patch"},
    ],
    "tool_choice": {"type": "function", "name": "tide"},
    "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}},
    "metadata": {"team": "search"},
    "client_metadata": {"session_id": "talk-1"},
    "user": "ann",
    "safety_identifier": "ann-1",
    "prompt_cache_key": "talk-1",
    "reasoning": {"effort": "low", "summary": "auto"},
    "custom_field": {"a": ["b"]},
}
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "When?"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "tide", "args": {"port": "x"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "tide", "response": {"time": "6:40"}}}]},
    ],
    "tools": [{"functionDeclarations": [{"name": "tide", "description": "High", "parametersJsonSchema": SCHEMA}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["tide"]}},
    "generationConfig": {
        "stopSequences": ["END"], "responseMimeType": "application/json", "responseJsonSchema": SCHEMA,
    },
    "labels": {"team": "search"},
}  # fmt: skip
EMBED: dict[str, Any] = {"content": {"role": "user", "parts": [{"text": "a heron"}]}, "taskType": "RETRIEVAL_QUERY"}
_GEMINI_PATH = "/v1beta/models/chat-openai:"
#: Path and body by name.
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"chat-{name}": ("/v1/chat/completions", {"model": f"chat-{name}", **CHAT})
        for name in ("openai", "anthropic", "gemini", "bedrock")
    },
    "chat-cohere": ("/v1/chat/completions", {"model": "chat-cohere", **CHAT, "tool_choice": "required"}),
    "stream": (
        "/v1/chat/completions",
        {"model": "chat-openai", **CHAT, "logit_bias": {"50256": -100}, "stream": True},
    ),
    **{
        f"completions-{name}": (
            "/v1/completions",
            {"model": name, "prompt": "a heron", "stop": ["END"], "user": "ann", "max_tokens": 9, "custom_field": "x"},
        )
        for name in ("chat-openai", "chat-anthropic")
    },
    "messages": ("/v1/messages", {"model": "chat-openai", **MESSAGES}),
    "messages-anthropic": ("/v1/messages", {"model": "chat-anthropic", **MESSAGES}),
    "count_tokens": (
        "/v1/messages/count_tokens",
        {"model": "chat-openai", **{name: value for name, value in MESSAGES.items() if name != "max_tokens"}},
    ),
    "responses": ("/v1/responses", {"model": "chat-openai", **RESPONSES}),
    "input_tokens": ("/v1/responses/input_tokens", {"model": "chat-openai", **RESPONSES}),
    "gemini": (f"{_GEMINI_PATH}generateContent", GEMINI),
    "gemini-gemini": ("/v1beta/models/chat-gemini:generateContent", GEMINI),
    "gemini-stream": (f"{_GEMINI_PATH}streamGenerateContent?alt=sse", GEMINI),
    "gemini-tokens": (f"{_GEMINI_PATH}countTokens", {"generateContentRequest": {"model": "models/m1", **GEMINI}}),
    "embed": ("/v1beta/models/embeddings-openai:embedContent", EMBED),
    "embed-batch": ("/v1beta/models/embeddings-openai:batchEmbedContents", {"requests": [{"model": "m", **EMBED}]}),
    **{
        f"embeddings-{name}": (
            "/v1/embeddings",
            {"model": f"embeddings-{name}", "input": ["a heron", "a gull"], "encoding_format": "float", "user": "ann"},
        )
        for name in ("openai", "gemini", "cohere")
    },
    "moderation": (
        "/v1/moderations",
        {
            "model": "moderation-openai", "custom_field": "x",
            "input": [{"type": "text", "text": "a heron"}, {"type": "image_url", "image_url": {"url": IMAGE}}],
        },
    ),
    **{
        f"rerank-{name}": (
            "/v1/rerank",
            {
                "model": f"rerank-{name}", "query": "a heron", "documents": ["grey herons", {"text": "a gull"}],
                "return_documents": True, "custom_field": "x",
            },
        )
        for name in ("openai", "cohere")
    },
    **{
        f"images-{name}": (
            "/v1/images/generations",
            {
                "model": f"images-{name}", "prompt": "a heron", "size": "1024x1024", "user": "ann", "custom_field": "x",
                **({"quality": "low", "background": "auto", "output_format": "png"} if name == "openai" else {}),
            },
        )
        for name in ("openai", "gemini")
    },
    **{
        f"speech-{name}": (
            "/v1/audio/speech",
            {
                "model": f"speech-{name}", "input": "Three herons.", "voice": "alloy", "instructions": "Slowly.",
                "response_format": "wav", "custom_field": "x",
            },
        )
        for name in ("openai", "gemini", "deepgram", "elevenlabs")
    },
}  # fmt: skip


def answer(seen: Seen) -> Reply:
    """A right answer of the endpoint and dialect that was asked."""
    path = seen.path.partition("?")[0]
    for end, dialect in (("/messages", "anthropic"), ("/converse", "bedrock"), ("/v2/chat", "cohere")):
        if path.endswith(end):
            return Reply.json(WHOLE[dialect])
    return right_answer(seen)


def rich_settings(upstream: FakeUpstream, folder: Path) -> Settings:
    """Models of each endpoint and dialect on that server, and tags."""
    upstream.answer = answer
    settings = settings_for(upstream, folder)
    return structs.replace(settings, server=structs.replace(settings.server, tags=("team", "env")))

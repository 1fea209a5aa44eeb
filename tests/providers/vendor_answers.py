"""What each vendor with a preset really sends: whole answers, and streams byte by byte, with comments and blank lines.

Groq's are also read by Groq's own SDK (`test_presets.py`), which refuses keys it does not know.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.testing import Reply

DONE = b"data: [DONE]\n\n"


def event(document: Any) -> bytes:
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def streamed(*frames: bytes) -> Reply:
    return Reply(headers={"Content-Type": "text/event-stream; charset=utf-8"}, frames=list(frames))


def chunk(delta: Any, finish: str | None = None, *, head: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **extra}


# Mistral -------------------------------------------------------------------------------------------------------------

_MISTRAL = {
    "id": "8ff1c0e5d2a14b34a1d1d9a0c0a2b7d4",
    "object": "chat.completion.chunk",
    "created": 1795000000,
    "model": "magistral-medium-2509",
}
MISTRAL_USAGE = {
    "prompt_tokens": 21,
    "total_tokens": 65,
    "completion_tokens": 44,
    "prompt_audio_seconds": None,
    "service_tier": "standard",
}
MISTRAL_STREAM = [
    event(chunk({"role": "assistant", "content": ""}, head=_MISTRAL)),
    event(chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Two "}]}]}, head=_MISTRAL)),
    event(chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "pairs."}]}]}, head=_MISTRAL)),
    event(chunk({"content": [{"type": "text", "text": "Fo"}]}, head=_MISTRAL)),
    event(chunk({"content": "ur."}, head=_MISTRAL)),
    event(chunk({"content": ""}, "model_length", head=_MISTRAL, usage=MISTRAL_USAGE)),
    DONE,
]
MISTRAL_CALLS = {
    "id": "cmpl-e5cc70bb28c444948073e77776eb30ef",
    "object": "chat.completion",
    "model": "mistral-small-latest",
    "usage": {"prompt_tokens": 16, "completion_tokens": 34, "total_tokens": 50},
    "created": 1795000000,
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "",
                "prefix": False,
                "tool_calls": [
                    {"id": "D681PevKs", "function": {"name": "tide", "arguments": '{"port": "Brest"}'}, "index": 0}
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
}
MISTRAL_INVALID = {
    "object": "error",
    "message": {
        "detail": [
            {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}
        ]
    },
    "type": "invalid_request_error",
    "param": None,
    "code": None,
}

# DeepSeek ------------------------------------------------------------------------------------------------------------

_DEEPSEEK = {
    "id": "1f633d8bfc032625086f14113c411638",
    "object": "chat.completion.chunk",
    "created": 1795000000,
    "model": "deepseek-v4",
    "system_fingerprint": "fp_a49d71b8a1",
}
DEEPSEEK_USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 30,
    "total_tokens": 70,
    "prompt_tokens_details": {"cached_tokens": 32},
    "completion_tokens_details": {"reasoning_tokens": 24},
    "prompt_cache_hit_tokens": 32,
    "prompt_cache_miss_tokens": 8,
}
DEEPSEEK_STREAM = [
    b": keep-alive\n\n",
    b": keep-alive\n\n",
    event(chunk({"role": "assistant", "content": None, "reasoning_content": ""}, head=_DEEPSEEK)),
    event(chunk({"content": None, "reasoning_content": "Two pairs."}, head=_DEEPSEEK)),
    event(chunk({"content": "Four.", "reasoning_content": None}, head=_DEEPSEEK)),
    event(chunk({"content": "", "reasoning_content": None}, "stop", head=_DEEPSEEK, usage=DEEPSEEK_USAGE)),
    DONE,
]
DEEPSEEK_OUT_OF_MACHINES = [
    *DEEPSEEK_STREAM[:4],
    event(chunk({"content": ""}, "insufficient_system_resource", head=_DEEPSEEK)),
    DONE,
]
DEEPSEEK_WHOLE = {
    "id": "930c60df-bf64-41c9-a88e-3ec75f81e00e",
    "object": "chat.completion",
    "created": 1795000000,
    "model": "deepseek-v4",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Four.", "reasoning_content": "Two pairs."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {name: count for name, count in DEEPSEEK_USAGE.items() if name != "prompt_tokens_details"},
    "system_fingerprint": "fp_a49d71b8a1",
}

# Groq ----------------------------------------------------------------------------------------------------------------

_GROQ = {
    "id": "chatcmpl-645b02ad-986b-4566-9c94-38dc0d0a1f8c",
    "object": "chat.completion.chunk",
    "created": 1795000000,
    "model": "openai/gpt-oss-120b",
    "system_fingerprint": "fp_179b0f92c9",
}
GROQ_USAGE = {
    "queue_time": 0.021,
    "prompt_tokens": 78,
    "prompt_time": 0.003,
    "completion_tokens": 31,
    "completion_time": 0.064,
    "total_tokens": 109,
    "total_time": 0.067,
    "prompt_tokens_details": {"cached_tokens": 64},
    "completion_tokens_details": {"reasoning_tokens": 20},
}
GROQ_CHUNKS = [
    chunk({"role": "assistant", "content": ""}, head=_GROQ, x_groq={"id": "req_01k2xq"}),
    chunk({"reasoning": "Two pairs."}, head=_GROQ),
    chunk({"content": "Four."}, head=_GROQ),
    chunk({}, "stop", head=_GROQ, x_groq={"id": "req_01k2xq", "usage": GROQ_USAGE}),
]
GROQ_BROKEN = chunk({}, head=_GROQ, x_groq={"id": "req_01k2xq", "error": "model is over capacity, try again"})
GROQ_STREAM = [*map(event, GROQ_CHUNKS), DONE]

# xAI -----------------------------------------------------------------------------------------------------------------

_XAI = {
    "id": "a3d1008e-4544-40d4-d075-11527e794e4a",
    "object": "chat.completion.chunk",
    "created": 1795000000,
    "model": "grok-4-fast-reasoning",
    "system_fingerprint": "fp_10f00c862d",
}
XAI_USAGE = {
    "prompt_tokens": 32,
    "completion_tokens": 9,
    "total_tokens": 135,
    "prompt_tokens_details": {"text_tokens": 32, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 6},
    "completion_tokens_details": {
        "reasoning_tokens": 94,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
    "num_sources_used": 0,
}
XAI_STREAM = [
    event(chunk({"role": "assistant", "reasoning_content": "Two pairs."}, head=_XAI)),
    event(chunk({"content": "Four."}, head=_XAI)),
    event(chunk({}, "stop", head=_XAI)),
    event({**_XAI, "choices": [], "usage": XAI_USAGE}),
    DONE,
]
XAI_ERROR = {
    "code": "Client specified an invalid argument",
    "error": "Argument not supported on this model: presencePenalty",
}

# Together ------------------------------------------------------------------------------------------------------------

_TOGETHER = {
    "id": "oBRdjp2-zqrih",
    "object": "chat.completion.chunk",
    "created": 1795000000,
    "model": "Qwen/Qwen3-235B",
}
TOGETHER_USAGE = {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20}
TOGETHER_STREAM = [
    event(
        chunk(
            {"role": "assistant", "content": "", "reasoning": "Two pairs.", "reasoning_content": "Two pairs."},
            head=_TOGETHER,
            usage=None,
            warnings=[{"message": "temperature was clamped"}],
        )
    ),
    event(chunk({"role": "assistant", "content": "Four.", "token_id": 17}, head=_TOGETHER, usage=None)),
    event(chunk({"role": "assistant", "content": ""}, "eos", head=_TOGETHER, usage=TOGETHER_USAGE)),
    DONE,
]

# OpenRouter ----------------------------------------------------------------------------------------------------------

_OPENROUTER = {
    "id": "gen-1795000000-x7Kq",
    "provider": "Fireworks",
    "model": "deepseek/deepseek-v4",
    "object": "chat.completion.chunk",
    "created": 1795000000,
}
OPENROUTER_USAGE = {
    "prompt_tokens": 15,
    "completion_tokens": 11,
    "total_tokens": 26,
    "cost": 0.0000217,
    "is_byok": False,
    "cost_details": {"upstream_inference_cost": None},
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 6},
}
_OPENROUTER_THOUGHT = {"type": "reasoning.text", "text": "Two pairs.", "format": "unknown", "index": 0}
OPENROUTER_STREAM = [
    b": OPENROUTER PROCESSING\n\n",
    b": OPENROUTER PROCESSING\n\n",
    event(
        {
            **_OPENROUTER,
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "role": "assistant",
                        "content": "",
                        "reasoning": "Two pairs.",
                        "reasoning_details": [_OPENROUTER_THOUGHT],
                    },
                    "finish_reason": None,
                    "native_finish_reason": None,
                    "logprobs": None,
                }
            ],
        }
    ),
    event(chunk({"role": "assistant", "content": "Four."}, head=_OPENROUTER)),
    event(
        {
            **_OPENROUTER,
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": ""},
                    "finish_reason": "stop",
                    "native_finish_reason": "eos",
                    "logprobs": None,
                }
            ],
        }
    ),
    event({**_OPENROUTER, "choices": [], "usage": OPENROUTER_USAGE}),
    DONE,
]
OPENROUTER_BROKEN = event(
    {
        **_OPENROUTER,
        "error": {"code": 502, "message": "Provider disconnected", "metadata": {"provider_name": "Fireworks"}},
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
    }
)
OPENROUTER_NO_CREDIT = {
    "error": {"message": "Insufficient credits. Add more at the site.", "code": 402},
    "user_id": "u1",
}
OPENROUTER_MODERATED = {
    "error": {
        "message": "This model requires moderation. Your input was flagged",
        "code": 403,
        "metadata": {"reasons": ["violence"], "flagged_input": "…", "provider_name": "OpenInference"},
    }
}

# vLLM ----------------------------------------------------------------------------------------------------------------

_VLLM = {"id": "chatcmpl-7d2c", "object": "chat.completion.chunk", "created": 1795000000, "model": "Qwen/Qwen3-8B"}
VLLM_USAGE = {"prompt_tokens": 9, "total_tokens": 21, "completion_tokens": 12}


def _vllm(delta: Any, finish: str | None = None, **extra: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None, **extra}
    return event({**_VLLM, "choices": [choice], "prompt_token_ids": None})


VLLM_STREAM = [
    _vllm({"role": "assistant", "content": ""}),
    _vllm({"reasoning": "Two pairs."}),
    _vllm({"content": "Four."}),
    _vllm({"content": ""}, "stop", stop_reason=None),
    event({**_VLLM, "choices": [], "usage": VLLM_USAGE}),
    DONE,
]
VLLM_BROKEN = [
    *VLLM_STREAM[:3],
    event({"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}}),
    DONE,
]
VLLM_WHOLE = {
    **_VLLM,
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Four.",
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "tool_calls": [],
                "reasoning": "Two pairs.",
            },
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": None,
        }
    ],
    "service_tier": None,
    "system_fingerprint": None,
    "usage": {**VLLM_USAGE, "prompt_tokens_details": None},
    "prompt_logprobs": None,
    "prompt_token_ids": None,
    "kv_transfer_params": None,
}

# Ollama --------------------------------------------------------------------------------------------------------------

_OLLAMA = {
    "id": "chatcmpl-554",
    "object": "chat.completion.chunk",
    "created": 1795000000,
    "model": "qwen3:8b",
    "system_fingerprint": "fp_ollama",
}
OLLAMA_CALL_STREAM = [
    event(chunk({"role": "assistant", "content": "", "reasoning": "The tide."}, head=_OLLAMA)),
    event(
        chunk(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_8x2m1qzt",
                        "index": 0,
                        "type": "function",
                        "function": {"name": "tide", "arguments": '{"port":"Brest"}'},
                    }
                ],
            },
            head=_OLLAMA,
        )
    ),
    event(chunk({"role": "assistant", "content": ""}, "stop", head=_OLLAMA)),
    event({**_OLLAMA, "choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 17, "total_tokens": 47}}),
    DONE,
]
OLLAMA_NOT_PULLED = {
    "error": {
        "message": 'model "qwen9" not found, try pulling it first',
        "type": "api_error",
        "param": None,
        "code": None,
    }
}

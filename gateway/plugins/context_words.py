"""What servers and vendors say of a prompt that is longer than the model's context window.

Agents compact their session on this error, and a fallback with a larger window is tried. A limit of tokens in a time is
told in similar words, and waiting helps there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


#: Patterns of messages and codes, each with who says it.
_TOO_LONG: Final = _any_of((
    r"context[ _-]?(length|limit|window|size)",  # OpenAI, DeepSeek, Groq, Ollama, LM Studio, MiniMax; llama.cpp: type
    r"maximum context",  # OpenRouter, SGLang, Mistral, vLLM
    r"maximum (prompt|input|model) length",  # xAI, vLLM
    r"(prompt|input|messages) (\(\d+ tokens\) )?(is|are) too long",  # Anthropic, Bedrock, Fireworks, AI21, vLLM
    r"length of all messages is too long",  # Perplexity
    r"too many (input )?tokens",  # Cohere
    r"exceeds? the (maximum|max|available|configured) (number of |limit of )?(\d+ )?(input )?tokens",  # Gemini
    r"number of input tokens exceeds|input tokens exceeded",  # Nova on Bedrock
    r"longer than the (model|maximum)",  # SGLang, vLLM
    r"model token limit",  # Moonshot
    r"token count of \d+ exceeds|max_prompt_tokens_exceeded",  # GitHub Copilot
    r"tokens_limit_reached|max size: \d+ tokens",  # GitHub Models
    r"prompt exceeds max|^1261(?=\s|$)",  # Zhipu: message, code
    r"range of input length",  # Qwen
    r"tokens \+ .{0,40}must be <=",  # TGI, Together
    r"`inputs` must have less than \d+ tokens",  # TGI
    r"input tokens \d+ cannot exceed",  # watsonx
    r"reduce the length of (the|your) (messages|prompt|input)",  # Cerebras, Groq
))  # fmt: skip
_IN_A_TIME: Final = _any_of((
    r"(tokens?|requests?) per (min|hour|day)|\btpm\b",  # Groq with status 413, OpenAI; Bedrock with 400
    r"please wait before",  # Bedrock
    r"rate_limit_exceeded",  # Groq, OpenAI
))  # fmt: skip


def is_too_long(words: str) -> bool:
    """Whether an error's code and message, with a space between, say that the prompt is too long."""
    return _TOO_LONG.search(words) is not None and not is_limit_in_time(words)


def is_limit_in_time(words: str) -> bool:
    """Whether they say that a limit of tokens or requests in a time is reached."""
    return _IN_A_TIME.search(words) is not None

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


#: Patterns of messages and codes, each with who says it and where that is seen: `owner/repository#number` is an issue
#: or a pull request on GitHub.
_TOO_LONG: Final = _any_of((
    # OpenAI: webtimemachine/wtm2#579, and Responses: the-open-agent/openagent#2344; Anthropic with the output:
    # anthropics/claude-code#228; llama.cpp, by its type: ggml-org/llama.cpp#15780; DeepSeek: BerriAI/litellm#10431;
    # Groq's code: OpenHands/OpenHands#1902; MiniMax: MiniMax-AI/MiniMax-M2#119; Ollama: lfnovo/open-notebook#350;
    # LM Studio: lmstudio-ai/lmstudio-bug-tracker#546; vLLM: vllm-project/vllm#20409; SGLang: sgl-project/sglang#8096
    r"context[ _-]?(length|limit|window|size)",
    # OpenRouter: Aider-AI/aider#3721; SGLang: anomalyco/opencode#25230; Mistral: the list of
    # signatures in faktenforum/agents
    r"maximum context",
    # xAI: cline/cline#3120; vLLM: xorbitsai/inference#3785
    r"maximum (prompt|input|model) length",
    # SGLang: sgl-project/sglang#4048; Poolside: vals-ai/model-library, tests of retries
    r"input length \(?\d+( tokens\))? exceeds the maximum allowed",
    # Anthropic: anthropics/claude-code#12186; Bedrock: aws-samples/bedrock-chat#95; vLLM, in its log:
    # vllm-project/vllm#525; Fireworks: not found under this name, but in vals-ai/model-library, tests of retries
    r"(prompt|input|messages) (\(\d+ tokens\) )?(is|are) too long",
    # Perplexity: symfony/ai, tests of its bridge
    r"length of all messages is too long",
    # Cohere: cohere-ai/sandbox-topically#4; AI21: stanford-crfm/helm#349
    r"too many (input )?tokens",
    # Gemini: google-gemini/gemini-cli#4692
    r"exceeds? the (maximum|max|available|configured) (number of |limit of )?(\d+ )?(input )?tokens",
    # Nova on Bedrock: the list of signatures in faktenforum/agents
    r"number of input tokens exceeds|input tokens exceeded",
    # SGLang: QwenLM/Qwen3#1321; vLLM: langchain-ai/deepagents#468
    r"longer than the (model|maximum)",
    # Moonshot: MoonshotAI/kimi-cli#2011
    r"model token limit",
    # GitHub Copilot: microsoft/vscode#289219
    r"token count of \d+ exceeds|max_prompt_tokens_exceeded",
    # GitHub Models: eslint/tsc-meetings#593
    r"tokens_limit_reached|max size: \d+ tokens",
    # SiliconFlow: leookun/cursor-byok#129
    r"exceeded max_prompt_tokens",
    # Zhipu: zeroclaw-labs/zeroclaw#4124 (1261); NousResearch/hermes-agent#61728 (1210)
    r"prompt exceeds max|^1261(?=\s|$)|tokens in request more than max tokens",
    # Qwen: QwenLM/qwen-code#98
    r"range of input length",
    # TGI: huggingface/text-generation-inference#628; Together: stanford-crfm/helm#2079
    r"tokens \+ .{0,40}must be <=",
    # TGI: huggingface/text-generation-inference#695
    r"`inputs` must have less than \d+ tokens",
    # watsonx: agno-agi/agno, tests of its model
    r"input tokens \d+ cannot exceed",
    # Groq: OpenHands/OpenHands#1902; Cerebras: cline/cline#5140
    r"reduce the length of (the|your) (messages|prompt|input)",
    # llama.cpp for embeddings, with status 500: ggml-org/llama.cpp#7389
    r"input (\(\d+ tokens\) )?is too large to process",
))  # fmt: skip
_IN_A_TIME: Final = _any_of((
    # Groq with status 413: cline/cline#4971; OpenAI: fork-dev/TrackerWin#2595; Bedrock: minorun365/agent-book#29
    r"(tokens?|requests?) per (min|hour|day)|\btpm\b",
    # Bedrock: anthropics/claude-code#1466
    r"please wait before",
    # Groq and OpenAI, by their code: Aider-AI/aider#3265
    r"rate_limit_exceeded",
))  # fmt: skip


def is_too_long(words: str) -> bool:
    """Whether an error's code and message, with a space between, say that the prompt is too long."""
    return _TOO_LONG.search(words) is not None and not is_limit_in_time(words)


def is_limit_in_time(words: str) -> bool:
    """Whether they say that a limit of tokens or requests in a time is reached."""
    return _IN_A_TIME.search(words) is not None

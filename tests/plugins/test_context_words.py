"""What servers and vendors say of a prompt that is too long, and what sounds like it and is something else.

The sentences of `TOO_LONG` are those of the sources in `gateway/plugins/context_words.py`. Where a source does not show
the shape and the status, they are those of the vendor's other errors. A sentence of `OTHER` with a source names it; the
rest was not looked up. Agents compact their session on `context_length_exceeded`, and a fallback with a larger window
is tried, so a missed one ends a session and a wrong one compacts it in vain.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.errors import ContextLengthExceeded, GatewayError, UpstreamRateLimited
from gateway.plugins.upstream_errors import error_of_answer, error_of_document


def said(message: str, **rest: Any) -> dict[str, Any]:
    """OpenAI's shape."""
    return {"error": {"message": message, **rest}}


def anthropic(message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


#: By server or vendor: status and body.
TOO_LONG: dict[str, tuple[int, Any]] = {
    "OpenAI": (
        400,
        said(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
            type="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        ),
    ),
    "OpenAI, Responses": (
        400,
        said("Your input exceeds the context window of this model. Please adjust your input and try again."),
    ),
    "Anthropic": (400, anthropic("prompt is too long: 208310 tokens > 200000 maximum")),
    "Anthropic, with the output": (
        400,
        anthropic("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length"),
    ),
    "Gemini": (
        400,
        said(
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            code=400,
            status="INVALID_ARGUMENT",
        ),
    ),
    "Bedrock": (400, {"message": "Input is too long for requested model.", "__type": "ValidationException"}),
    "Bedrock, Nova": (
        400,
        {
            "message": "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds "
            "maximum length. Please update the input to try again."
        },
    ),
    "llama.cpp": (
        400,
        said(
            "the request exceeds the available context size. try increasing the context size or enable context shift",
            code=400,
            type="exceed_context_size_error",
            n_prompt_tokens=1500,
            n_ctx=1024,
        ),
    ),
    "llama.cpp, with counts": (
        400,
        said("request (1500 tokens) exceeds the available context size (1024 tokens), try increasing it", code=400),
    ),
    "llama.cpp, embeddings": (
        500,
        said(
            "input (992 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
            code=500,
            type="server_error",
        ),
    ),
    "TGI": (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` "
            "tokens and 200 `max_new_tokens`",
            "error_type": "validation",
        },
    ),
    "TGI, input alone": (
        422,
        {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1500", "error_type": "v"},
    ),
    "xAI": (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        },
    ),
    "Moonshot": (400, said("Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)")),
    "Zhipu": (400, said("Prompt exceeds max length", code="1261")),
    "Zhipu, with a number": (400, said("Prompt exceeds max length", code=1261)),
    "Zhipu, maximum of tokens": (400, said("tokens in request more than max tokens allowed", code="1210")),
    "Zhipu, code alone": (400, said("\u8f93\u5165\u8fc7\u957f", code="1261")),
    "Qwen": (400, said("Range of input length should be [1, 129024]", code="invalid_parameter_error")),
    "Qwen, own API": (
        400,
        {
            "code": "InvalidParameter",
            "message": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]",
        },
    ),
    "GitHub Copilot": (
        400,
        said("prompt token count of 140000 exceeds the limit of 128000", code="model_max_prompt_tokens_exceeded"),
    ),
    "GitHub Models": (
        413,
        said("Request body too large for gpt-4o model. Max size: 8000 tokens.", code="tokens_limit_reached"),
    ),
    "vLLM": (
        400,
        said("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the"),
    ),
    "vLLM, decoder": (
        400,
        said("The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that"),
    ),
    "vLLM, multimodal": (
        400,
        said("The prompt (total length 25938) is too long to fit into the model (context length 4096). Make sure that"),
    ),
    "vLLM, with the output": (
        400,
        said(
            "You passed 202753 input tokens and requested 0 output tokens. However, the model's context length is only "
            "202752 tokens, resulting in a maximum input length of 202752 tokens.",
            code=400,
        ),
    ),
    "vLLM, log": (400, said("Input prompt (5000 tokens) is too long and exceeds limit of 4096", code=400)),
    "SGLang": (400, said("The input (5000 tokens) is longer than the model's context length (4096 tokens).")),
    "SGLang, with the output": (
        400,
        said("Requested token count exceeds the model's maximum context length of 4096 tokens.", code=400),
    ),
    "SGLang, pool": (
        400,
        said("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).", code=400),
    ),
    "Poolside": (
        400,
        said("Input length 264373 exceeds the maximum allowed input length of 262112 tokens.", type="Bad Request"),
    ),
    "SiliconFlow": (
        400,
        {
            "code": 20015,
            "message": "number of input tokens (204703) has exceeded max_prompt_tokens (202752) limit.",
            "data": None,
        },
    ),
    "Perplexity": (
        400,
        said("The total length of all messages is too long.", type="too_many_prompt_tokens", code=400),
    ),
    "Mistral": (
        400,
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
            "context length",
            "type": "invalid_request_prompt",
            "code": "3051",
        },
    ),
    "Cohere": (
        400,
        {
            "message": "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received "
            "6354. Try using a shorter prompt or a smaller max_tokens value."
        },
    ),
    "Groq": (400, said("Please reduce the length of the messages or completion.", code="context_length_exceeded")),
    "Cerebras": (
        400,
        said("Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192"),
    ),
    "DeepSeek": (
        400,
        said("This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (60000 in the"),
    ),
    "Fireworks": (400, said("The prompt is too long: 1000008, model maximum context length: 131071")),
    "OpenRouter": (
        400,
        said("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000", code=400),
    ),
    "Ollama": (400, {"error": "the input length exceeds the context length"}),
    "LM Studio": (
        400,
        {
            "error": "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
            "with context length of only 4096 tokens, which is not enough."
        },
    ),
    "MiniMax": (400, anthropic("invalid params, context window exceeds limit (2013)")),
    "watsonx": (
        400,
        {"errors": [{"code": "invalid_input_argument", "message": "Invalid input argument for Model 'm': the number of "
                     "input tokens 4098 cannot exceed the total tokens limit 4096 for this model"}]},
    ),
    "AI21": (422, {"detail": "Request too many tokens: 1999 + 50 > 2048"}),
}  # fmt: skip

#: What is something else.
OTHER: dict[str, tuple[int, Any]] = {
    "tokens a minute, Groq": (  # cline/cline#4971
        413,
        said(
            "Request too large for model `llama` in organization `org_1` service tier `on_demand` on tokens per minute "
            "(TPM): Limit 6000, Requested 9000, please reduce your message size and try again.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "tokens a minute, OpenAI": (  # fork-dev/TrackerWin#2595
        429,
        said(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 40000. "
            "The input or output tokens must be reduced in order to run successfully.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "tokens a minute, Anthropic": (
        429,
        anthropic("This request would exceed your organization's rate limit of 40,000 input tokens per minute"),
    ),
    "tokens a minute, Bedrock": (  # anthropics/claude-code#1466
        429,
        {"message": "Too many tokens, please wait before trying again.", "__type": "ThrottlingException"},
    ),
    "tokens a day, Bedrock with the wrong status": (  # minorun365/agent-book#29
        400,
        {"message": "Too many tokens per day, please wait before trying again.", "__type": "ThrottlingException"},
    ),
    "quota of tokens, Gemini": (
        429,
        said("Quota exceeded for metric: generate_content_free_tier_input_token_count, limit: 250000", code=429),
    ),
    "output, Bedrock": (  # RooCodeInc/Roo-Code#3916
        400,
        {
            "message": "The maximum tokens you requested exceeds the model limit of 32768. Try again with a maximum "
            "tokens value that is lower than 32768.",
            "__type": "ValidationException",
        },
    ),
    "output, Groq": (  # anomalyco/opencode#1000
        400,
        said(
            "`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens` is less than the "
            "`context_window` for this model",
            type="invalid_request_error",
        ),
    ),
    "output, OpenAI": (
        400,
        said("max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas you"),
    ),
    "output, Anthropic": (  # ChatGPTNextWeb/NextChat#4964
        400,
        anthropic("max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for claude-x"),
    ),
    "output, Gemini": (
        400,
        said("Unable to submit request because it has a maxOutputTokens value of 70000 but the supported range is from "
             "1 (inclusive) to 65537 (exclusive)."),
    ),
    "output, Qwen": (400, said("Range of max_tokens should be [1, 8192]")),
    "output, vLLM beyond the window": (  # what vLLM 0.32.0 answers in tests/servers
        400,
        said(
            "max_tokens=8000 cannot be greater than max_model_len=2048. Please request fewer output tokens. "
            "(parameter=max_tokens, value=8000)",
            type="BadRequestError",
            param="max_tokens",
            code=400,
        ),
    ),
    "output, vLLM": (400, said("max_tokens must be at least 1, got 0.")),
    "thinking, Anthropic": (400, anthropic("`max_tokens` must be greater than `thinking.budget_tokens`.")),
    "size of an image, Anthropic": (400, anthropic("image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes")),
    "pixels of an image, Anthropic": (
        400,
        anthropic("At least one of the image dimensions exceed max allowed size: 8000 pixels"),
    ),
    "images, OpenAI": (400, said("Too many images in request: at most 500 images are allowed.")),
    "pages of a PDF, Anthropic": (400, anthropic("A maximum of 100 PDF pages may be provided.")),
    "bytes of a request, Gemini": (400, said("Request payload size exceeds the limit: 20971520 bytes.", code=400)),
    "bytes of a request, Anthropic": (413, anthropic("Request exceeds the maximum size")),
    "text, OpenAI": (
        400,
        said("Invalid 'metadata.name': string too long. Expected a string with maximum length 512, but got 600"),
    ),
    "tools, OpenAI": (400, said("Invalid 'tools': array too long. Expected an array with maximum length 128, but got")),
    "stop sequences": (400, said("Invalid 'stop': array too long. Expected an array with maximum length 4")),
    "description of a tool": (400, anthropic("tools.0.custom.description: String should have at most 1024 characters")),
    "name of a tool": (400, said("Invalid 'tools[0].function.name': string too long. Expected maximum length 64")),
    "choices, TGI": (422, {"error": "Input validation error: `best_of` must be > 0 and <= 2", "error_type": "v"}),
    "stop sequences, TGI": (422, {"error": "Input validation error: `stop` supports up to 4 stop sequences"}),
    "cache points": (400, anthropic("A maximum of 4 blocks with cache_control may be provided. Found 5.")),
    "session": (400, said("Invalid 'prompt_cache_key': string too long. Expected maximum length 64")),
}  # fmt: skip


def error_of(status: int, body: Any) -> GatewayError:
    return error_of_answer(status, {}, msgspec.json.encode(body))


@pytest.mark.parametrize("vendor", TOO_LONG)
def test_prompt_that_is_too_long_is_known_by_the_words_of_the_vendor(vendor: str) -> None:
    error = error_of(*TOO_LONG[vendor])
    assert isinstance(error, ContextLengthExceeded), error


@pytest.mark.parametrize("vendor", TOO_LONG)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_status_does_not_decide_whether_a_prompt_is_too_long(vendor: str, status: int) -> None:
    assert isinstance(error_of(status, TOO_LONG[vendor][1]), ContextLengthExceeded)


@pytest.mark.parametrize("vendor", TOO_LONG)
def test_error_in_a_stream_is_known_by_the_same_words(vendor: str) -> None:
    _, body = TOO_LONG[vendor]
    assert isinstance(error_of_document(body.get("error") or body), ContextLengthExceeded)


@pytest.mark.parametrize("vendor", OTHER)
def test_what_sounds_like_a_long_prompt_is_no_such_error(vendor: str) -> None:
    assert not isinstance(error_of(*OTHER[vendor]), ContextLengthExceeded)


@pytest.mark.parametrize("vendor", OTHER)
def test_what_sounds_like_a_long_prompt_in_a_stream_is_no_such_error(vendor: str) -> None:
    _, body = OTHER[vendor]
    assert not isinstance(error_of_document(body.get("error") or body), ContextLengthExceeded)


@pytest.mark.parametrize("vendor", [vendor for vendor in OTHER if vendor.startswith("tokens a")])
def test_limit_of_tokens_in_a_time_is_a_limit(vendor: str) -> None:
    assert isinstance(error_of(*OTHER[vendor]), UpstreamRateLimited)

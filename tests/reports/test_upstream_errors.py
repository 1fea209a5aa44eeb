"""Errors of upstreams: what they mean, wherever and in whatever words they are written."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client

from .streams import chunk, error_of, finishes, text_of


async def refused(client: Client, upstream: FakeUpstream, status: int, **error: Any) -> tuple[int, dict[str, Any]]:
    """Status and error of a call that the upstream answered with this error."""
    upstream.enqueue(Reply.json({"error": {"type": "invalid_request_error", **error}}, status=status))
    response, answer = await client.chat()
    return response.status, answer["error"]


# Too long ------------------------------------------------------------------------------------------------------------


async def context_error(client: Client, upstream: FakeUpstream, message: str, status: int = 400, **error: Any) -> None:
    seen, answer = await refused(client, upstream, status, message=message, **error)
    assert (seen, answer["code"], answer["param"]) == (400, "context_length_exceeded", "messages")


async def test_azures_limit_of_input_tokens_is_a_context_length(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/BerriAI/litellm/issues/15968"""
    await context_error(
        client, upstream, "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178."
    )


async def test_perplexitys_length_of_all_messages_is_a_context_length(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/BerriAI/litellm/pull/21647"""
    await context_error(client, upstream, "The total length of all messages is too long.")


async def test_sglangs_input_longer_than_the_model_is_a_context_length(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/BerriAI/litellm/issues/10793"""
    await context_error(client, upstream, "The input (9000 tokens) is longer than the model's context length (8192).")


async def test_code_context_window_exceeded_is_a_context_length(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/XiaomiMiMo/MiMo-Code/pull/2417"""
    await context_error(client, upstream, "Too much.", type="context_window_exceeded", code=400)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "prompt token count of 128537 exceeds the limit of 128000",
        "Your request exceeded model token limit: 262144",
        "Prompt exceeds max length",
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        "Range of input length should be [1, 30720]",
        "Please reduce the length of the messages or completion.",
    ],
)
@pytest.mark.parametrize("status", [400, 422, 500])
async def test_words_of_other_servers_for_too_long_are_a_context_length(
    client: Client, upstream: FakeUpstream, message: str, status: int
) -> None:
    """https://github.com/BerriAI/litellm/issues/21558, and the texts of xAI, llama.cpp, Copilot, Moonshot, Zhipu, vLLM,
    DashScope and Groq."""
    await context_error(client, upstream, message, status)


async def test_limit_of_prompt_and_answer_together_is_a_context_length(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/BerriAI/litellm/issues/21558, the text of TGI: a lower limit is tried first."""
    message = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4076 `inputs` tokens"
    upstream.enqueue(Reply.error(422, message))
    await context_error(client, upstream, message, 422)


async def test_prompt_that_is_too_long_is_a_context_length_with_status_413(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/james-6-23/codex2api/issues/310: agents shorten their history after this code only."""
    await context_error(client, upstream, "Request body too large for gpt-4o model. Max size: 8000 tokens.", 413)


async def test_body_that_is_too_large_stays_a_413(client: Client, upstream: FakeUpstream) -> None:
    """The other side of the case before."""
    status, error = await refused(client, upstream, 413, message="Request exceeds the maximum size of 32 MB")
    assert (status, error["code"]) == (413, "request_too_large")


# What upstreams quote ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        "Invalid schema for function 'get_billing_history': 'a payment required' is not valid",
        "Invalid schema for function 'list_flagged_items': None is not of type 'object'",
        "Invalid schema for function 'set_context_window': None is not of type 'object'",
        "Unknown parameter: 'billing'.",
        "Invalid value: 'insufficient_quota'. Supported values are: 'a', 'b'.",
        'Unsupported value: "credit balance" for "mode"',
    ],
)
async def test_words_that_an_upstream_quotes_from_the_request_do_not_decide_what_its_error_means(
    client: Client, upstream: FakeUpstream, message: str
) -> None:
    """https://github.com/pydantic/pydantic-ai/pull/4221 (false positives of texts).

    Here a tool called `get_billing_history` made the gateway believe that the operator had no credit left: 503, and
    after a few such calls the circuit took the model from everybody.
    """
    status, error = await refused(client, upstream, 400, message=message)
    assert (status, error["code"], error["message"]) == (400, "invalid_value", message)


async def test_calls_that_an_upstream_refuses_do_not_open_the_circuit(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/pydantic/pydantic-ai/pull/4221, the harm to others."""
    message = "Invalid schema for function 'get_billing_history': None is not of type 'object'"
    for _ in range(12):
        assert (await refused(client, upstream, 400, message=message))[0] == 400
    assert (await client.chat())[0].status == 200


@pytest.mark.parametrize(
    "message",
    [
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
        'AnthropicException - {"type":"error","error":{"message":"Your credit balance is too low"}}',
    ],
)
async def test_spent_credit_is_still_not_the_callers_fault(
    client: Client, upstream: FakeUpstream, message: str
) -> None:
    """The other side of the cases before."""
    status, error = await refused(client, upstream, 400, message=message)
    assert (status, error["code"]) == (503, "service_unavailable")
    assert "credit" not in error["message"]


# Errors with status 200 ----------------------------------------------------------------------------------------------

LIMITED = {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit exceeded"}}


async def test_minimaxs_error_in_a_whole_answer_of_status_200_is_that_error(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/CherryHQ/cherry-studio/issues/11287"""
    upstream.enqueue(Reply.json(LIMITED))
    response, answer = await client.chat()
    assert (response.status, answer["error"]["code"]) == (429, "slow_down")


async def test_minimaxs_error_in_a_stream_is_that_error(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/CherryHQ/cherry-studio/issues/11287"""
    upstream.enqueue(Reply.stream([LIMITED]))
    response, text, _ = await client.stream()
    assert (response.status, "slow_down" in text) == (429, True)


async def test_spent_balance_with_an_own_number_is_not_taken_for_a_status(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/adrianlyjak/obsidian-aloud-tts/pull/114"""
    upstream.enqueue(Reply.json({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}))
    response, answer = await client.chat()
    assert (response.status, answer["error"]["code"]) == (503, "service_unavailable")


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        ({"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded"}, 429, "slow_down"),
        ({"success": False, "code": 50604, "message": "System is too busy now."}, 503, "server_is_overloaded"),
        ({"detail": "Rate limit exceeded"}, 429, "slow_down"),
        ({"type": "upstream_error", "message": "too many requests"}, 429, "slow_down"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_error_without_the_key_error_is_an_error(
    client: Client, upstream: FakeUpstream, document: dict[str, Any], status: int, code: str, streamed: bool
) -> None:
    """https://github.com/QwenLM/qwen-code/pull/8322"""
    upstream.enqueue(Reply.stream([document], done=False) if streamed else Reply.json(document))
    if streamed:
        response, text, _ = await client.stream()
        assert (response.status, code in text) == (status, True)
    else:
        response, answer = await client.chat()
        assert (response.status, answer["error"]["code"]) == (status, code)


async def test_event_that_is_no_chunk_and_no_error_is_passed_over(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/agentgateway/agentgateway/pull/681"""
    upstream.enqueue(Reply.stream([{"type": "ping"}, b"data:\n\n", chunk({"content": "Hi"}), chunk(finish="stop")]))
    _, text, failure = await client.stream()
    assert (text_of(text), finishes(text), failure) == ("Hi", ["stop"], None)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "This model has a maximum context length of 10", "code": "context_length_exceeded"}}',
        b'{\n  "error": {\n    "code": "context_length_exceeded"\n  }\n}\n',
    ],
)
async def test_plain_json_under_the_type_of_a_stream_is_the_error_that_it_says(
    client: Client, upstream: FakeUpstream, body: bytes
) -> None:
    """https://github.com/snailyp/gemini-balance/pull/347"""
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=[body]))
    response, text, _ = await client.stream()
    assert (response.status, "context_length_exceeded" in text) == (400, True)


async def test_page_of_html_under_the_type_of_a_stream_is_no_answer(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/preloop/preloop/issues/109"""
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=[b"<html>Bad gateway</html>"]))
    response, text, _ = await client.stream()
    assert (response.status, "upstream_stream_truncated" in text) == (502, True)


async def test_error_that_runs_into_an_unfinished_event_is_no_regular_end(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/Wei-Shaw/sub2api/issues/1471"""
    broken = b'data: {"choices":[{"index":0,"del\ndata: {"type":"error","message":"stream_read_error"}\n\n'
    upstream.enqueue(Reply.stream([chunk({"content": "Hi"}), broken]))
    _, text, failure = await client.stream()
    assert (text_of(text), error_of(text)["code"]) == ("Hi", "upstream_invalid_response")
    assert failure is not None


# Ends that are failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["network_error", "network-error", "MALFORMED_FUNCTION_CALL", "cancelled", "timeout"]
)
async def test_finish_reason_that_names_a_failure_is_no_regular_end(
    client: Client, upstream: FakeUpstream, reason: str
) -> None:
    """https://github.com/earendil-works/pi/issues/2313"""
    upstream.enqueue(Reply.stream([chunk({"content": "Hi"}), chunk(finish=reason)]))
    _, text, _ = await client.stream()
    assert error_of(text)["code"] == "upstream_error"
    assert finishes(text) == []


async def test_failure_as_the_finish_of_an_empty_stream_is_tried_again(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/NousResearch/hermes-agent/pull/92161"""
    good = [chunk({"content": "Hi"}), chunk(finish="stop")]
    upstream.enqueue(Reply.stream([chunk(finish="network_error")]), Reply.stream(good))
    response, text, failure = await client.stream(model="two")
    assert (response.status, text_of(text), failure) == (200, "Hi", None)


async def test_failure_as_the_finish_of_a_whole_answer_is_an_error(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/theopenco/llmgateway/pull/1588"""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "network_error"}
    upstream.enqueue(Reply.json({"choices": [choice]}))
    response, answer = await client.chat()
    assert (response.status, answer["error"]["code"]) == (502, "upstream_error")


@pytest.mark.parametrize(
    ("reason", "told"), [("sensitive", "content_filter"), ("SAFETY", "content_filter"), ("MAX_TOKENS", "length")]
)
async def test_finish_reasons_of_other_vendors_are_told_in_openais_words(
    client: Client, upstream: FakeUpstream, reason: str, told: str
) -> None:
    """https://github.com/promptfoo/promptfoo/pull/9905"""
    upstream.enqueue(Reply.stream([chunk({"content": "Hi"}), chunk(finish=reason)]))
    _, text, _ = await client.stream()
    assert finishes(text) == [told]

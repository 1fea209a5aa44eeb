"""Every price that a dialect's answer can touch is charged: what was counted, in whole answers and in streams.

Each price below is different, so a token in a wrong bucket changes the sum. Costs are computed by hand, in nano-units.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers import cohere_dialect, converse_dialect, messages_dialect
from tests.providers import gemini_upstream as google

BALANCE = 1000 * NANO

# Per million tokens, so a token costs a thousandth of that: `input = 1` is 1,000 nano-units a token.
PRICE: dict[str, Any] = {
    "input": 1,
    "cached_input": Decimal("0.1"),
    "cache_write": Decimal("1.25"),
    "cache_write_long": 2,
    "output": 8,
    "reasoning": 9,
    "audio_input": 3,
    "cached_audio_input": Decimal("0.2"),
    "audio_output": 16,
    "image_input": 5,
    "image_output": 96,
    "per_search_unit": Decimal("0.002"),  # 2,000,000 nano-units each
    "per_web_search": Decimal("0.01"),  # 10,000,000 nano-units each
}


class Case(Struct, kw_only=True):
    """Two answers that mean the same, and their cost."""

    model: str
    whole: Reply
    streamed: Reply
    cost: int


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """One model for each dialect, all on one server."""
    url = upstream.url
    providers = {
        "openai": {"plugin": "openai", "base_url": f"{url}/v1"},
        "anthropic": {"plugin": "anthropic", "base_url": url, "api_key": "sk-ant-canary-01"},
        "gemini": {"plugin": "gemini", "base_url": f"{url}/v1beta", "api_key": google.KEY},
        "cohere": {"plugin": "cohere", "base_url": url, "api_key": cohere_dialect.KEY},
        "bedrock": {
            "plugin": "bedrock",
            "base_url": url,
            "region": converse_dialect.REGION,
            "access_key_id": converse_dialect.KEY_ID,
            "secret_access_key": converse_dialect.SECRET,
        },
    }
    names = {
        "openai": ("openai", "gpt-6-image"),
        "anthropic": ("anthropic", messages_dialect.ADAPTIVE),
        "gemini-2": ("gemini", "gemini-2.5-flash"),
        "gemini-3": ("gemini", "gemini-3-flash-preview"),
        "cohere": ("cohere", cohere_dialect.MODEL),
        "bedrock": ("bedrock", converse_dialect.PLAIN),
    }
    models = {
        name: {"provider": provider, "model": model, "price": PRICE, "max_output_tokens": 5000}
        for name, (provider, model) in names.items()
    }
    document = {"store": {"data_dir": str(tmp_path)}, "providers": providers, "models": models}
    return parse({**document, "groups": {"default": {}}}, demo=True)


# The dialects --------------------------------------------------------------------------------------------------------


def openai(usage: dict[str, Any]) -> tuple[Reply, Reply]:
    """An OpenAI-compatible answer with these counts."""
    head = {"id": "c", "created": 1, "model": "m"}
    message = {"role": "assistant", "content": "Here it is."}
    whole = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    chunk = {**head, "object": "chat.completion.chunk"}
    chunks = [
        {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**chunk, "choices": [], "usage": usage},
    ]
    return Reply.json({**head, **whole, "usage": usage}), Reply.stream(chunks)


def anthropic(usage: dict[str, Any]) -> tuple[Reply, Reply]:
    """A Messages answer; a stream has its counts in two events."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    whole = {**head, "content": [{"type": "text", "text": "Four."}], "stop_reason": "end_turn", "usage": usage}
    start: dict[str, Any] = {
        **head,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1, "server_tool_use": None},
    }
    event = messages_dialect.event
    return Reply.json(whole), messages_dialect.streamed(
        event("message_start", message=start),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Four."}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage),
        event("message_stop"),
    )


def gemini(usage: dict[str, Any], *grounding: dict[str, Any]) -> tuple[Reply, Reply]:
    """A Gemini answer; `grounding` metadata is in the frames of a stream one by one, and together in a whole answer."""
    text = {"text": "Here it is."}
    together: dict[str, Any] = {}
    for metadata in grounding:
        for name, queries in metadata.items():
            together[name] = together.get(name, []) + queries
    extra: dict[str, Any] = {"groundingMetadata": together} if together else {}
    whole = google.document(google.candidate(text, finish="STOP", **extra), usage=usage)
    frames = [google.document(google.candidate(text, groundingMetadata=metadata)) for metadata in grounding]
    frames += [google.document(google.candidate(text)), google.document(google.candidate(finish="STOP"), usage=usage)]
    return Reply.json(whole), google.sse(*frames)


def cohere(usage: dict[str, Any]) -> tuple[Reply, Reply]:
    """A chat answer of Cohere."""
    event = cohere_dialect.event
    message = {"role": "assistant", "content": [{"type": "text", "text": "Four."}]}
    whole = {"id": "c", "finish_reason": "COMPLETE", "message": message, "usage": usage}
    return Reply.json(whole), cohere_dialect.streamed(
        event("message-start", id="c", delta={"message": {"role": "assistant", "content": [], "tool_calls": []}}),
        event("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}}),
        event("content-delta", index=0, delta={"message": {"content": {"text": "Four."}}}),
        event("content-end", index=0),
        event("message-end", id="c", delta={"finish_reason": "COMPLETE", "usage": usage}),
    )


def bedrock(usage: dict[str, Any]) -> tuple[Reply, Reply]:
    """A Converse answer."""
    event = converse_dialect.event
    message = {"role": "assistant", "content": [{"text": "Four."}]}
    whole = {"output": {"message": message}, "stopReason": "end_turn", "usage": usage}
    return Reply.json(whole), converse_dialect.streamed(
        event("messageStart", role="assistant"),
        event("contentBlockDelta", delta={"text": "Four."}, contentBlockIndex=0),
        event("contentBlockStop", contentBlockIndex=0),
        event("messageStop", stopReason="end_turn"),
        event("metadata", usage=usage, metrics={"latencyMs": 1}),
    )


def case(model: str, replies: tuple[Reply, Reply], cost: int) -> Case:
    return Case(model=model, whole=replies[0], streamed=replies[1], cost=cost)


def modalities(**counts: int) -> list[dict[str, Any]]:
    return [{"modality": name, "tokenCount": count} for name, count in counts.items()]


CASES = {
    "image output tokens": case(
        "openai",
        openai(
            {
                "prompt_tokens": 100,
                "completion_tokens": 1320,
                "completion_tokens_details": {"image_tokens": 1290, "reasoning_tokens": 20},
            }
        ),
        100 * 1_000 + 10 * 8_000 + 20 * 9_000 + 1290 * 96_000,
    ),
    "OpenAI's counts of every kind": case(
        "openai",
        openai(
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "prompt_tokens_details": {
                    "cached_tokens": 10,
                    "cache_write_tokens": 20,
                    "cache_write_tokens_details": {"ttl_30m_tokens": 15, "ttl_12h_tokens": 5},
                    "audio_tokens": 30,
                    "image_tokens": 7,
                },
                "completion_tokens_details": {"reasoning_tokens": 8, "audio_tokens": 12},
            }
        ),
        33 * 1_000 + 10 * 100 + 15 * 1_250 + 5 * 2_000 + 30 * 3_000 + 7 * 5_000 + 30 * 8_000 + 8 * 9_000 + 12 * 16_000,
    ),
    "Moonshot's cached tokens": case(
        "openai",
        openai({"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, "cached_tokens": 900}),
        100 * 1_000 + 900 * 100 + 10 * 8_000,
    ),
    "DeepSeek's cached tokens": case(
        "openai",
        openai({"prompt_tokens": 1000, "completion_tokens": 10, "prompt_cache_hit_tokens": 900}),
        100 * 1_000 + 900 * 100 + 10 * 8_000,
    ),
    "OpenRouter's web searches": case(
        "openai",
        openai({"prompt_tokens": 100, "completion_tokens": 10, "server_tool_use": {"web_search_requests": 3}}),
        100 * 1_000 + 10 * 8_000 + 3 * 10_000_000,
    ),
    "xAI's sources": case(
        "openai",
        openai({"prompt_tokens": 100, "completion_tokens": 10, "num_sources_used": 4}),
        100 * 1_000 + 10 * 8_000 + 4 * 10_000_000,
    ),
    "xAI's search calls": case(
        "openai",
        openai(
            {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "num_sources_used": 0,
                "server_side_tool_usage_details": {"web_search_calls": 2, "x_search_calls": 1, "mcp_calls": 9},
            }
        ),
        100 * 1_000 + 10 * 8_000 + 3 * 10_000_000,
    ),
    "Perplexity's searches and reasoning": case(
        "openai",
        openai(
            {
                "prompt_tokens": 33,
                "completion_tokens": 500,
                "total_tokens": 533,
                "citation_tokens": 52,
                "num_search_queries": 18,
                "reasoning_tokens": 4000,
            }
        ),
        33 * 1_000 + 500 * 8_000 + 4000 * 9_000 + 18 * 10_000_000,
    ),
    "top-level reasoning inside the completion": case(
        "openai",
        openai({"prompt_tokens": 33, "completion_tokens": 500, "reasoning_tokens": 400}),
        33 * 1_000 + 100 * 8_000 + 400 * 9_000,
    ),
    "Anthropic's web searches": case(
        "anthropic",
        anthropic(
            {
                "input_tokens": 100,
                "cache_read_input_tokens": 50,
                "output_tokens": 10,
                "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 7},
            }
        ),
        100 * 1_000 + 50 * 100 + 10 * 8_000 + 2 * 10_000_000,
    ),
    "Gemini's image output": case(
        "gemini-2",
        gemini(google.usage(6, 1300, candidatesTokensDetails=modalities(IMAGE=1290, TEXT=10))),
        6 * 1_000 + 10 * 8_000 + 1290 * 96_000,
    ),
    "Gemini's cached audio": case(
        "gemini-2",
        gemini(
            {
                "promptTokenCount": 1000,
                "cachedContentTokenCount": 800,
                "candidatesTokenCount": 10,
                "promptTokensDetails": modalities(AUDIO=950, TEXT=50),
                "cacheTokensDetails": modalities(AUDIO=790, TEXT=10),
            }
        ),
        40 * 1_000 + 10 * 100 + 160 * 3_000 + 790 * 200 + 10 * 8_000,
    ),
    "Gemini's grounded prompts before 3": case(
        "gemini-2",
        gemini(google.usage(7, 10), {"webSearchQueries": ["tide", "wind"]}, {"webSearchQueries": ["moon"]}),
        7 * 1_000 + 10 * 8_000 + 10_000_000,
    ),
    "Gemini's search queries": case(
        "gemini-3",
        gemini(
            google.usage(7, 10),
            {"webSearchQueries": ["tide", "wind", ""]},
            {"webSearchQueries": ["wind"], "imageSearchQueries": ["boats"]},
        ),
        7 * 1_000 + 10 * 8_000 + 3 * 10_000_000,
    ),
    "Cohere's search units": case(
        "cohere",
        cohere(
            {
                "billed_units": {"input_tokens": 100.0, "output_tokens": 10.0, "search_units": 2.0},
                "tokens": {"input_tokens": 100.0, "output_tokens": 10.0},
            }
        ),
        100 * 1_000 + 10 * 8_000 + 2 * 2_000_000,
    ),
    "Bedrock's cache": case(
        "bedrock",
        bedrock(
            {
                "inputTokens": 100,
                "outputTokens": 10,
                "cacheReadInputTokens": 50,
                "cacheWriteInputTokens": 30,
                "cacheDetails": [{"ttl": "1h", "inputTokens": 10}, {"ttl": "5m", "inputTokens": 20}],
            }
        ),
        100 * 1_000 + 50 * 100 + 20 * 1_250 + 10 * 2_000 + 10 * 8_000,
    ),
}


@pytest.mark.holds("prices.md#what-is-charged-11", "prices.md#what-is-charged-12")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("answer", CASES.values(), ids=CASES)
async def test_every_count_of_a_dialect_is_charged_at_its_price(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Keys, ledger: Ledger, answer: Case, stream: bool
) -> None:
    await accounts.create("payer", balance=BALANCE)
    client.headers = {"Authorization": f"Bearer {(await keys.create('payer')).text}"}
    upstream.enqueue(answer.streamed if stream else answer.whole)
    if stream:
        response, text, failure = await client.stream(model=answer.model)
        assert failure is None and text.endswith("data: [DONE]\n\n")
    else:
        response, _ = await client.chat(model=answer.model)
    assert response.status == 200
    line = await until(lambda: last_line(ledger, "payer", response.headers["x-request-id"]))
    assert "estimated" not in line.meta
    assert -line.amount == answer.cost

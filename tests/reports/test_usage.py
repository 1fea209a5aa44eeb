"""Usage as servers write it, and what a call costs for it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.ledger import Ledger, LedgerLine
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import until

from .streams import USAGE, chunk

END = chunk(finish="stop")


async def charged(
    client: Client, ledger: Ledger, upstream: FakeUpstream, *chunks: Any, model: str = "m1"
) -> LedgerLine:
    """The line of a streamed call with these chunks."""
    upstream.enqueue(Reply.stream(list(chunks), done=model == "m1"))
    response, _, failure = await client.stream(model=model)
    assert failure is None
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert isinstance(line, LedgerLine)
    return line


def counts(line: LedgerLine) -> dict[str, Any]:
    """The usage of a line that no estimate made."""
    assert not line.meta.get("estimated")
    return {name: count for name, count in line.meta["usage"].items() if count}


async def test_usage_with_anthropics_names_in_openais_dialect_is_charged(
    client: Client, ledger: Ledger, upstream: FakeUpstream
) -> None:
    """https://github.com/earendil-works/pi/issues/2326"""
    usage = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16, "prompt_tps": 21.55}
    line = await charged(client, ledger, upstream, chunk({"content": "Hi"}), END, {"choices": [], "usage": usage})
    assert counts(line) == {"in_text": 11, "out_text": 5}
    assert -line.amount == 11_000 + 10_000


async def test_cache_writes_and_reads_with_litellms_names_have_their_own_prices(
    client: Client, ledger: Ledger, upstream: FakeUpstream
) -> None:
    """https://github.com/BerriAI/litellm/issues/11364"""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 30, "text_tokens": None},
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
    }
    line = await charged(client, ledger, upstream, chunk({"content": "Hi"}), END, {"choices": [], "usage": usage})
    assert counts(line) == {"in_text": 10, "in_cached": 60, "in_cache_write_short": 30, "out_text": 5}
    assert -line.amount == 10_000 + 6_000 + 37_500 + 10_000


async def test_cache_reads_beside_the_details_are_charged_as_such(
    client: Client, ledger: Ledger, upstream: FakeUpstream
) -> None:
    """https://github.com/BerriAI/litellm/issues/39505"""
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "cache_read_input_tokens": 60}
    line = await charged(client, ledger, upstream, chunk({"content": "Hi"}), END, {"choices": [], "usage": usage})
    assert counts(line) == {"in_text": 40, "in_cached": 60, "out_text": 5}


@pytest.mark.parametrize("placeholder", [{}, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None])
async def test_placeholder_before_or_after_the_usage_does_not_replace_it(
    client: Client, ledger: Ledger, upstream: FakeUpstream, placeholder: Any
) -> None:
    """https://github.com/router-for-me/CLIProxyAPI/issues/4053"""
    empty = {"choices": [], "usage": placeholder}
    first = {**chunk({"content": "Hi"}), "usage": placeholder}
    line = await charged(client, ledger, upstream, first, END, {"choices": [], "usage": USAGE}, empty)
    assert counts(line) == {"in_text": 17, "out_text": 2}


async def test_usage_in_a_chunk_with_a_choice_keeps_its_cached_tokens(
    client: Client, ledger: Ledger, upstream: FakeUpstream
) -> None:
    """https://github.com/BerriAI/litellm/issues/36168"""
    usage = {"completion_tokens": 2, "prompt_tokens": 111, "prompt_tokens_details": {"cached_tokens": 72}}
    last = {**chunk({}), "usage": usage}
    line = await charged(client, ledger, upstream, chunk({"content": "Hi"}), END, last)
    assert counts(line) == {"in_text": 39, "in_cached": 72, "out_text": 2}


async def test_more_cached_tokens_than_the_prompt_has_are_not_a_credit(
    client: Client, ledger: Ledger, upstream: FakeUpstream
) -> None:
    """https://github.com/BerriAI/litellm/issues/6215, of the kind: cached tokens are a part of the prompt."""
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 500}}
    line = await charged(client, ledger, upstream, chunk({"content": "Hi"}), END, {"choices": [], "usage": usage})
    assert counts(line) == {"in_cached": 100, "out_text": 5}


@pytest.mark.parametrize("last", [{"input_tokens": 0, "output_tokens": 5}, {"output_tokens": 5}])
@pytest.mark.parametrize("first", [0, 15])
async def test_zero_in_one_of_anthropics_events_does_not_replace_the_count_of_the_other(
    client: Client, ledger: Ledger, upstream: FakeUpstream, first: int, last: dict[str, int]
) -> None:
    """https://github.com/envoyproxy/ai-gateway/pull/1631 and https://github.com/sgl-project/sglang/issues/20678"""
    if not first:
        last = {"input_tokens": 15, "output_tokens": 5}
    start = {"role": "assistant", "content": [], "usage": {"input_tokens": first, "output_tokens": 0}}
    line = await charged(
        client,
        ledger,
        upstream,
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
        model="claude",
    )
    assert counts(line) == {"in_text": 15, "out_text": 5}


async def test_early_zeros_of_gemini_do_not_replace_its_last_usage(
    client: Client, ledger: Ledger, upstream: FakeUpstream
) -> None:
    """https://github.com/router-for-me/CLIProxyAPI/issues/4964"""
    said = {"content": {"role": "model", "parts": [{"text": "Hi"}]}}
    zero = {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}
    full = {"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12}
    line = await charged(
        client,
        ledger,
        upstream,
        {"candidates": [said], "usageMetadata": zero},
        {"candidates": [{"finishReason": "STOP"}], "usageMetadata": full},
        model="gemini",
    )
    assert counts(line) == {"in_text": 10, "out_text": 2}

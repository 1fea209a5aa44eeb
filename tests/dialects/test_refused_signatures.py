"""Signed reasoning of another vendor in an upstream's own dialect: refused once, left out, and paid for once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounts.accounts import Accounts
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.api.endpoints.test_gemini_native import FRAMES
from tests.api.endpoints.test_responses_native import CALL, MESSAGE, REASONING, USAGE, response, stream_events, streamed
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers.gemini_upstream import KEY, THOUGHT
from tests.providers.messages_dialect import document, frames
from tests.providers.messages_dialect import streamed as messages_streamed

DROPPED = "x-gateway-dropped-params"
OPENAI = Reply.error(
    400,
    "The encrypted content gAAA...DQ== could not be verified. Reason: Encrypted content could not be decrypted.",
    code="invalid_encrypted_content",
)
GOOGLE = Reply.json(
    {"error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}}, status=400
)
ANTHROPIC = Reply.json(
    {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
        },
    },
    status=400,
)
STREAM = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model for each dialect; `gemini-3` demands signatures."""
    key = "sk-upstream-canary-0123456789"
    price = {"price": {"input": 1, "output": 2}, "retries": 0}
    google = {"provider": "google", "model": "gemini-2.5-flash", **price}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "openai": {"plugin": "openai", "base_url": upstream.base_url, "api_key": key, "responses": True},
                "google": {"plugin": "gemini", "base_url": upstream.base_url + "beta", "api_key": KEY},
                "claude": {"plugin": "anthropic", "base_url": upstream.url, "api_key": key},
            },
            "groups": {"default": {}},
            "models": {
                "gpt": {"provider": "openai", "model": "upstream-m1", **price},
                "gemini": google,
                "gemini-3": {**google, "model": "gemini-3-flash"},
                "claude": {"provider": "claude", "model": "claude-sonnet-5", **price},
            },
        },
        demo=True,
    )


async def sent(client: Client, path: str, body: dict[str, Any]) -> aiohttp.ClientResponse:
    """The response to a call, read to its end."""
    async with client.request("POST", path, json=body) as got:
        await got.read()
        return got


INPUT = [{"role": "user", "content": "Hi"}, REASONING, CALL, {"role": "user", "content": "Go on"}]


async def ask_gpt(client: Client, *, streams: bool) -> aiohttp.ClientResponse:
    return await sent(client, "/v1/responses", {"model": "gpt", "input": INPUT, "stream": streams})


@STREAM
async def test_reasoning_items_are_left_out(client: Client, upstream: FakeUpstream, *, streams: bool) -> None:
    whole = Reply.json(response("completed", [MESSAGE], usage=USAGE))
    upstream.enqueue(OPENAI, streamed(stream_events()) if streams else whole)
    got = await ask_gpt(client, streams=streams)
    assert (got.status, got.headers[DROPPED]) == (200, "input.reasoning")
    assert [one.json["input"] for one in upstream.seen] == [INPUT, [item for item in INPUT if item != REASONING]]


async def test_call_is_charged_once_and_nothing_stays_held(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    before = (await settled(accounts)).balance
    upstream.enqueue(OPENAI, Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    got = await ask_gpt(client, streams=False)
    line = await until(lambda: last_line(ledger, "acme", got.headers["x-request-id"]))
    usage = line.meta["usage"]
    assert (usage["in_text"] + usage["in_cached"], usage["out_text"] + usage["out_reasoning"]) == (17, 9)
    assert line.meta["attempts"] == 1
    assert before - (await settled(accounts)).balance == -line.amount > 0
    assert (await ledger.audit("acme")).clean


async def test_second_refusal_is_the_answer(client: Client, upstream: FakeUpstream, accounts: Accounts) -> None:
    before = (await settled(accounts)).balance
    upstream.enqueue(OPENAI, OPENAI, Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    got = await ask_gpt(client, streams=False)
    assert (got.status, len(upstream.seen)) == (400, 2)
    assert (await ask_gpt(client, streams=False)).status == 200  # the circuit counts no refusal
    assert (await settled(accounts)).balance < before


@STREAM
@pytest.mark.parametrize("model", ["gemini", "gemini-3"])
async def test_thought_signatures_are_left_out(
    client: Client, upstream: FakeUpstream, model: str, *, streams: bool
) -> None:
    call = {"functionCall": {"name": "tide", "args": {}}}
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{**call, "thoughtSignature": "Zm9yZWlnbg=="}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "tide", "response": {"result": "6:40"}}}]},
    ]
    upstream.enqueue(GOOGLE, Reply.stream(FRAMES) if streams else Reply.json(THOUGHT))
    method = "streamGenerateContent?alt=sse" if streams else "generateContent"
    got = await sent(client, f"/v1beta/models/{model}:{method}", {"contents": contents})
    assert (got.status, got.headers[DROPPED]) == (200, "contents.thoughtSignature")
    first, second = (one.json["contents"][1]["parts"] for one in upstream.seen)
    assert first == [{**call, "thoughtSignature": "Zm9yZWlnbg=="}]
    bypass = {"thoughtSignature": "skip_thought_signature_validator"} if model == "gemini-3" else {}
    assert second == [{**call, **bypass}]


@STREAM
async def test_chat_loses_thinking_blocks_that_another_vendor_signed(
    client: Client, upstream: FakeUpstream, *, streams: bool
) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmF0dXJl"}
    answered = {"role": "assistant", "content": "Brest.", "thinking_blocks": [thinking]}
    messages = [{"role": "user", "content": "Hi"}, answered, {"role": "user", "content": "Go on"}]
    upstream.enqueue(ANTHROPIC, messages_streamed(*frames("text")) if streams else Reply.json(document("text")))
    got = await sent(client, "/v1/chat/completions", {"model": "claude", "messages": messages, "stream": streams})
    assert (got.status, got.headers[DROPPED]) == (200, "messages.reasoning")
    kinds = [[block["type"] for block in one.json["messages"][1]["content"]] for one in upstream.seen]
    assert kinds == [["thinking", "text"], ["text"]]

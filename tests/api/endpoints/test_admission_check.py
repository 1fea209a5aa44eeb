"""`explain` holds for a call what its endpoint holds, and counts the tokens that it counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.accounts.admission_check import Explanation, explain
from gateway.admin.call_check import with_fallbacks
from gateway.amounts import format_amount
from gateway.api.routes import endpoint_named
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import chat_prompt
from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.inference.endpoint import RequestSize
from gateway.ledger import Hold, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.runtime.gateway import Gateway
from gateway.schemas.chat_request import decode_chat_request
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client


async def explained(gateway: Gateway, quote: Quote, key: ApiKey) -> Explanation:
    ledger = Ledger(gateway.store, gateway.catalog.groups)
    return await explain(gateway.store, ledger, key_id=key.id, quote=lambda _: quote)


@pytest.mark.parametrize("model", ["m1", "capped"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limit", [None, 40])
async def test_explanation_uses_the_estimate_of_the_chat_endpoint(
    client: Client,
    gateway: Gateway,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    stream: bool,
    limit: int | None,
) -> None:
    asked: list[tuple[ApiKey, Quote]] = []
    admit = Ledger.admit

    async def noted(self: Ledger, request_id: str, key: ApiKey, quote: Quote) -> Hold:
        asked.append((key, quote))
        return await admit(self, request_id, key, quote)

    monkeypatch.setattr(Ledger, "admit", noted)
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "What is two and two?"}]}
    body |= {"stream": True} if stream else {}
    body |= {"max_completion_tokens": limit} if limit else {}
    upstream.enqueue(Reply.json({"error": {"message": "no"}}, status=400))
    await client.chat(**body)
    ((key, quote),) = asked
    tokens = chat_prompt(decode_chat_request(json.dumps(body).encode())).tokens
    size = RequestSize(tokens=tokens, max_tokens=limit, stream=stream)
    told = await explained(gateway, endpoint_named("chat").quote_size(gateway.catalog.models[model], size), key)
    assert told.admitted
    assert (told.hold, told.tokens) == (format_amount(quote.hold), quote.tokens)


def test_model_is_checked_with_its_fallbacks_and_without_all_other_models() -> None:
    fake = {"provider": "fake", "free": True}
    models = {
        "first": {**fake, "fallbacks": ["second"]},
        "second": {**fake, "aliases": ["next"], "fallbacks": ["third"]},
        "third": fake,
        "fourth": {**fake, "fallbacks": ["next"]},
        "other": fake,
    }
    settings = parse({"providers": {"fake": {"plugin": "fake"}}, "models": models}, demo=True)
    assert sorted(with_fallbacks(settings, "first").models) == ["first", "second", "third"]
    assert sorted(with_fallbacks(settings, "fourth").models) == ["fourth", "second", "third"]
    assert Catalog.build(with_fallbacks(settings, "fourth")).models["fourth"].fallbacks == ("next",)

"""Long-context steps and service tiers: what was served is charged, in each dialect, and the hold covers it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.billing.quote import Quote
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Hold, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.testing import FakeUpstream, Reply, Seen
from tests.api.conftest import Client as Http
from tests.ledger_lines import last_line
from tests.polling import until

from .answers import Answer, reply
from .clients import CLIENTS, Client, Question

STEP = 1000  # tokens of the prompt above which the price is doubled
CASES = (
    # what is asked, what the upstream says it served, and the factor that is charged
    ("priority", "priority", 2.0),
    ("priority", "default", 1.0),
    ("flex", "flex", 0.5),
    ("flex", "default", 1.0),
    (None, "priority", 1.0),  # nobody pays for a tier that was not asked for
    (None, "flex", 0.5),
)
SERVED = {"chat": ("service_tier",), "responses": ("service_tier",), "messages": ("usage", "service_tier")}
WORDS = {"messages": {"default": "standard"}}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model on each upstream that tells the tier, with a step and factors."""
    price = {
        "input": 1,
        "cached_input": "0.1",
        "output": 2,
        "tiers": [{"above_input_tokens": STEP, "input": 2, "cached_input": "0.2", "output": 4}],
        "service_tier_multiplier": {"flex": Decimal("0.5"), "priority": Decimal(2)},
    }
    key = {"api_key": "upstream-key"}
    openai = {"plugin": "openai", "base_url": upstream.base_url, **key}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "chat": openai,
                "responses": {**openai, "responses": True},
                "messages": {"plugin": "anthropic", "base_url": upstream.url, **key},
            },
            "models": {f"m-{api}": {"provider": api, "model": "up", "price": price, "retries": 0} for api in SERVED},
        },
        demo=True,
    )


def served(api: str, tier: str, tokens_in: int) -> Any:
    """The upstream's answers, which name the tier."""

    def answer(seen: Seen) -> Reply:
        said = reply(Answer("Hi", tokens_in=tokens_in, cached=100, tokens_out=20), seen)
        *path, name = SERVED[api]
        word = WORDS.get(api, {}).get(tier, tier)

        def tell(document: Any) -> None:
            if isinstance(document, dict):
                is_end = document.get("type") == "message_delta"  # which has no tier
                holder = (
                    None if is_end else document.get(path[0]) if path else document if "usage" in document else None
                )
                if isinstance(holder, dict):
                    holder[name] = word
                for value in document.values():
                    tell(value)

        if said.frames is None:
            document = json.loads(said.body)
            tell(document)
            return Reply.json(document)
        frames = []
        for line in b"".join(said.frames).splitlines(keepends=True):
            if line.startswith(b"data: {"):
                document = json.loads(line.removeprefix(b"data: "))
                tell(document)
                line = b"data: " + json.dumps(document).encode() + b"\n"
            frames.append(line)
        return Reply(headers=said.headers, frames=[b"".join(frames)])

    return answer


@pytest.mark.holds("prices.md#what-is-charged-14", "prices.md#what-is-charged-16")
@pytest.mark.parametrize("api", SERVED)
async def test_step_and_tier_that_were_served_are_charged_and_were_held(
    client: Http, upstream: FakeUpstream, ledger: Ledger, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds: list[int] = []
    admit = Ledger.admit

    async def noted(self: Ledger, request_id: str, key: ApiKey, quote: Quote) -> Hold:
        hold = await admit(self, request_id, key, quote)
        holds.append(quote.hold)
        return hold

    monkeypatch.setattr(Ledger, "admit", noted)
    question = Question(text="Which port? " * 400)  # of which the estimate is above the step
    for dialect, (asked, used, factor), stream, tokens_in in (
        (dialect, case, stream, tokens_in)
        for dialect in CLIENTS
        for case in CASES
        for stream in (False, True)
        for tokens_in in (STEP, STEP + 200)
    ):
        if used == "flex" and api == "messages":
            continue
        if asked is not None and (dialect.name not in {"chat", "responses"} or api == "messages"):
            continue  # the dialect, or the upstream, has no such wish
        upstream.answer = served(api, used, tokens_in)
        request_id = await send(client, dialect, f"m-{api}", question, asked, stream=stream)
        line = await until(lambda request_id=request_id: last_line(ledger, "acme", request_id))
        step = 2 if tokens_in > STEP else 1
        cost = ((tokens_in - 100) * 1000 + 100 * 100 + 20 * 2000) * step * factor
        assert -line.amount == cost, (dialect.name, asked, used, stream, tokens_in)
        assert holds[-1] >= cost
        assert not line.meta.get("uncollected")
    assert (await ledger.audit()).clean


async def send(
    client: Http, dialect: Client, model: str, question: Question, asked: str | None, *, stream: bool
) -> str:
    """Send the question; returns the id of the request."""
    path, body = dialect.ask(model, question, stream=stream)
    if asked is not None:
        body["service_tier"] = asked
    async with client.request("POST", path, json=body) as response:
        assert response.status == 200, await response.text()
        await response.read()
        return response.headers["x-request-id"]

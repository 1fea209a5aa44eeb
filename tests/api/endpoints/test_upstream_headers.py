"""What an upstream tells beside its counts: its own price, which is recorded only, and seconds of sound, which cost."""

from __future__ import annotations

import base64
import io
import wave
from pathlib import Path
from typing import Any

import pytest

from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.ledger.line import LedgerLine
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, record_holds

TOKEN = NANO // 1000
SECOND = NANO // 100
CALL = (2 + 3) * TOKEN  # what the tokens of `usage` cost


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model priced by token, and one that also charges each second of sound."""
    price = {"input": 1000, "output": 1000}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": {"plugin": "openai", "base_url": upstream.base_url}},
            "groups": {"default": {}},
            "models": {
                "m1": {"provider": "up", "price": price, "retries": 0},
                "vectors": {"provider": "up", "price": price, "endpoints": ["embeddings"]},
                "ears": {"provider": "up", "price": {**price, "per_second_in": "0.01"}, "retries": 0},
            },
        },
        demo=True,
    )


def usage(**beside: Any) -> dict[str, Any]:
    return {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5, **beside}


def whole(**beside: Any) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Four."}, "finish_reason": "stop"}
    return Reply.json({"object": "chat.completion", "choices": [choice], "usage": usage(**beside)})


def streamed(**beside: Any) -> Reply:
    parts: list[tuple[dict[str, Any], str | None]] = [({"content": "Four."}, None), ({}, "stop")]
    chunks = [
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in parts
    ]
    return Reply.stream([*chunks, {"object": "chat.completion.chunk", "choices": [], "usage": usage(**beside)}])


def spoken(seconds: int) -> list[dict[str, Any]]:
    """A message that holds so many seconds of sound."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 8000 * seconds))
    sound = {"data": base64.b64encode(buffer.getvalue()).decode(), "format": "wav"}
    return [{"role": "user", "content": [{"type": "input_audio", "input_audio": sound}]}]


async def last_charge(gateway: Gateway, ledger: Ledger) -> LedgerLine:
    await gateway.settlement.drain()
    return [line async for line in ledger.lines("acme") if line.kind == "use"][-1]


async def test_upstreams_price_is_recorded_and_neither_charged_nor_shown(
    client: Client, gateway: Gateway, ledger: Ledger, upstream: FakeUpstream
) -> None:
    upstream.enqueue(whole(cost=0.0123), streamed(cost=0.0123))
    response, answer = await client.chat()
    line = await last_charge(gateway, ledger)
    assert answer["usage"]["total_tokens"] == 5 and "cost" not in str(answer)
    assert line.amount == -CALL
    assert line.json_form()["usage"] == {"in_text": 2, "out_text": 3, "provider_cost": "0.0123"}
    async with client.request("GET", f"/v1/usage/{response.headers['x-request-id']}") as receipt:
        assert (await receipt.json())["usage"] == {"in_text": 2, "out_text": 3}

    _, text, _ = await client.stream(stream_options={"include_usage": True})
    line = await last_charge(gateway, ledger)
    assert '"total_tokens":5' in text and "cost" not in text
    assert line.amount == -CALL and line.meta["usage"]["provider_cost"] == 12_300_000


async def test_upstreams_price_of_embeddings_is_recorded(
    client: Client, gateway: Gateway, ledger: Ledger, upstream: FakeUpstream
) -> None:
    vector = {"object": "embedding", "index": 0, "embedding": [1.0, 0.5]}
    document = {"object": "list", "data": [vector], "usage": {"prompt_tokens": 2, "total_tokens": 2, "cost": 0.5}}
    upstream.enqueue(Reply.json(document))
    async with client.request("POST", "/v1/embeddings", json={"model": "vectors", "input": "hi"}) as response:
        assert "cost" not in await response.text()
    line = await last_charge(gateway, ledger)
    assert (line.amount, line.meta["usage"]) == (-2 * TOKEN, {"in_text": 2, "provider_cost": 500_000_000})


@pytest.mark.parametrize("stream", [False, True])
async def test_audio_seconds_counted_by_the_upstream_are_charged_and_not_shown(
    client: Client, gateway: Gateway, ledger: Ledger, upstream: FakeUpstream, stream: bool
) -> None:
    upstream.enqueue((streamed if stream else whole)(prompt_audio_seconds=7))
    holds = record_holds(gateway)
    fields: dict[str, Any] = {"model": "ears", "messages": spoken(8), "max_tokens": 10}
    if stream:
        text = (await client.stream(**fields, stream_options={"include_usage": True}))[1]
    else:
        text = str((await client.chat(**fields))[1])
    line = await last_charge(gateway, ledger)
    assert "seconds" not in text
    assert line.amount == -(CALL + 7 * SECOND) and not line.meta.get("estimated")
    assert line.meta["usage"]["audio_seconds_in"] == 7
    assert holds[0].amount > 8 * SECOND


@pytest.mark.parametrize("told", [{}, {"prompt_audio_seconds": 900_000}])
async def test_missing_or_impossible_seconds_are_estimated(
    client: Client, gateway: Gateway, ledger: Ledger, upstream: FakeUpstream, told: dict[str, Any]
) -> None:
    upstream.enqueue(whole(**told))
    await client.chat(model="ears", messages=spoken(8))
    line = await last_charge(gateway, ledger)
    assert line.meta["usage"]["audio_seconds_in"] == pytest.approx(8, rel=0.05)
    assert line.meta.get("estimated") and -line.amount < CALL + 9 * SECOND


async def test_impossible_seconds_of_a_prompt_are_logged(
    client: Client, gateway: Gateway, ledger: Ledger, upstream: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.enqueue(whole(prompt_audio_seconds=900_000))
    await client.chat(model="ears", messages=spoken(8))
    line = await last_charge(gateway, ledger)
    logged = [record.getMessage() for record in caplog.records if "impossible seconds" in record.getMessage()]
    assert len(logged) == 1 and logged[0].startswith(f"{line.request_id}: ")


async def test_text_is_not_charged_by_the_second(
    client: Client, gateway: Gateway, ledger: Ledger, upstream: FakeUpstream
) -> None:
    upstream.enqueue(whole())
    await client.chat(model="ears")
    line = await last_charge(gateway, ledger)
    assert (line.amount, line.meta["usage"]) == (-CALL, {"in_text": 2, "out_text": 3})

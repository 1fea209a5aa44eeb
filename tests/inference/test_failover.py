"""Broken upstreams are somebody else's problem: one answer, one charge, and each row of the wire's error table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tornado.ioloop import IOLoop

import gateway.runtime.gateway as composition
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.plugins import instances
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client
from tests.polling import turns, until

PRICE = {"price": {"input": 1, "output": 2}}
NAMES = ("a", "b", "c")


@pytest.fixture
def upstreams(io_loop: IOLoop) -> Iterator[dict[str, FakeUpstream]]:
    """Three providers' servers."""
    servers = {name: FakeUpstream() for name in NAMES}
    for server in servers.values():
        io_loop.run_sync(server.start)
    yield servers
    for server in servers.values():
        io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstreams: dict[str, FakeUpstream]) -> Settings:
    """m1 is served by a, then b, then c; alone by a; keys by a with two credentials."""
    providers: dict[str, Any] = {
        name: {"plugin": "openai", "base_url": server.base_url, "api_key": f"sk-upstream-{name}-0123456789"}
        for name, server in upstreams.items()
    }
    (tmp_path / "rotated").write_text("sk-upstream-old-0123456789")
    providers["two"] = {
        "plugin": "openai",
        "base_url": upstreams["a"].base_url,
        "credentials": [{"api_key": "sk-upstream-first-01234567"}, {"api_key": "sk-upstream-second-0123456"}],
    }
    providers["rotating"] = {
        "plugin": "openai",
        "base_url": upstreams["a"].base_url,
        "api_key": f"file:{tmp_path / 'rotated'}",
    }
    targets = [{"provider": name, "model": f"upstream-{name}"} for name in NAMES]
    return parse(
        {
            "server": {"response_headers": ["model", "provider", "attempts"]},
            "store": {"data_dir": str(tmp_path)},
            "providers": providers,
            "models": {
                "m1": {"targets": targets, "strategy": "in_order", **PRICE},
                "pair": {"targets": targets[:2], "strategy": "in_order", **PRICE},
                "alone": {"provider": "a", "retries": 0, **PRICE},
                "keys": {"provider": "two", **PRICE},
                "rotating": {"provider": "rotating", **PRICE},
                "roomy": {"provider": "b", "context_window": 1_000_000, **PRICE},
                "small": {"provider": "a", "context_window": 10_000, "fallbacks": ["roomy"], **PRICE},
                "raced": {"targets": targets[:2], "strategy": "in_order", "hedge_after": 0.1, **PRICE},
            },
        },
        demo=True,
    )


@pytest.mark.holds("README.md#serve-real-models-2")
async def test_failover_over_three_targets_gives_one_answer_one_line_and_a_receipt_with_three_attempts(
    client: Client, upstreams: dict[str, FakeUpstream], ledger: Ledger
) -> None:
    upstreams["a"].enqueue(Reply.hang_up())
    upstreams["b"].enqueue(Reply.error(503, "overloaded"))
    response, document = await client.chat()
    assert response.status == 200
    assert document["choices"][0]["finish_reason"] == "stop"
    assert response.headers["x-gateway-provider"] == "c"
    assert response.headers["x-gateway-attempts"] == "3"
    request_id = response.headers["x-request-id"]

    async def receipt() -> Any:
        async with client.request("GET", f"/v1/usage/{request_id}") as found:
            return await found.json() if found.status == 200 else None  # it is written after the answer

    assert (await until(receipt))["attempts"] == 3
    lines = [line async for line in ledger.lines("acme") if line.kind == "use"]
    assert [line.request_id for line in lines] == [request_id]
    usage = document["usage"]
    assert -lines[0].amount == usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 2000
    assert [len(upstreams[name].seen) for name in NAMES] == [1, 1, 1]


async def test_a_stream_that_fails_over_before_its_first_chunk_is_complete(
    client: Client, upstreams: dict[str, FakeUpstream]
) -> None:
    upstreams["a"].enqueue(Reply.stream([], done=False))
    upstreams["b"].enqueue(Reply.error(500, "no"))
    response, text, failure = await client.stream()
    assert (response.status, failure) == (200, None)
    assert text.endswith("data: [DONE]\n\n")
    assert text.count('"role":"assistant"') == 1


@pytest.mark.holds("prices.md#calls-that-fail-or-are-cut-1")
async def test_three_failed_attempts_return_the_last_error_and_charge_nothing(
    client: Client, upstreams: dict[str, FakeUpstream], ledger: Ledger
) -> None:
    for name in NAMES:
        upstreams[name].enqueue(Reply.error(500, "no"))
    response, document = await client.chat()
    assert (response.status, document["error"]["code"]) == (502, "upstream_error")
    assert not any([line.amount async for line in ledger.lines("acme") if line.kind == "use"])


OVERFLOW = Reply.error(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded")
QUOTA = Reply.error(429, "You exceeded your current quota", code="insufficient_quota")

# docs/routing.md, "Attempts": what the upstream says, what the caller is told, and whether another target is tried.
ROWS: list[tuple[str, Reply, int, str, bool]] = [
    ("reset before the first byte", Reply.hang_up(), 502, "upstream_error", True),
    ("400 validation", Reply.error(400, "temperature is odd"), 400, "invalid_value", False),
    ("422 validation", Reply.error(422, "temperature is odd"), 400, "invalid_value", False),
    ("context overflow", OVERFLOW, 400, "context_length_exceeded", False),
    ("content policy", Reply.error(400, "filtered", code="content_filter"), 400, "content_filter", False),
    ("401", Reply.error(401, "bad key"), 502, "upstream_auth_error", True),
    ("403", Reply.error(403, "forbidden"), 502, "upstream_auth_error", True),
    ("402", Reply.error(402, "pay"), 503, "service_unavailable", True),
    ("credit gone", QUOTA, 503, "service_unavailable", True),
    ("404", Reply.error(404, "no such model"), 502, "upstream_error", True),
    ("408", Reply.error(408, "slow"), 504, "upstream_timeout", True),
    ("409", Reply.error(409, "conflict"), 502, "upstream_error", True),
    ("424", Reply.error(424, "dependency"), 502, "upstream_error", True),
    ("425", Reply.error(425, "early"), 502, "upstream_error", True),
    ("413", Reply.error(413, "large"), 413, "request_too_large", False),
    ("429", Reply.error(429, "slow down", headers={"retry-after": "7"}), 429, "slow_down", True),
    ("498", Reply.error(498, "flex capacity"), 503, "server_is_overloaded", True),
    ("499", Reply.error(499, "cancelled"), 502, "upstream_error", True),
    ("500", Reply.error(500, "no"), 502, "upstream_error", True),
    ("503 overloaded", Reply.error(503, "overloaded"), 503, "server_is_overloaded", True),
    ("520", Reply.error(520, "origin"), 502, "upstream_error", True),
    ("526", Reply.error(526, "certificate"), 502, "upstream_error", True),
    ("504", Reply.error(504, "timeout"), 504, "upstream_timeout", True),
    ("524", Reply.error(524, "timeout"), 504, "upstream_timeout", True),
    ("529", Reply.error(529, "overloaded"), 503, "server_is_overloaded", True),
]


@pytest.mark.parametrize(
    ("reply", "status", "code", "moves_on"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
async def test_upstream_answer_of_each_error_row_raises_its_error(
    client: Client, upstreams: dict[str, FakeUpstream], reply: Reply, status: int, code: str, moves_on: bool
) -> None:
    upstreams["a"].enqueue(reply)
    response, document = await client.chat(model="alone")
    assert (response.status, document["error"]["code"]) == (status, code)
    assert response.status not in (401, 403)
    assert (await moved_on(client, upstreams, reply)) is moves_on


async def moved_on(client: Client, upstreams: dict[str, FakeUpstream], reply: Reply) -> bool:
    """Whether another deployment was tried for the same failure."""
    upstreams["a"].enqueue(reply)
    before = len(upstreams["b"].seen)
    await client.chat(model="pair")
    return len(upstreams["b"].seen) > before


async def test_a_prompt_too_long_is_served_by_a_fallback_with_a_larger_window(
    client: Client, upstreams: dict[str, FakeUpstream]
) -> None:
    upstreams["a"].enqueue(OVERFLOW)
    response, _ = await client.chat(model="small")
    assert response.status == 200
    assert response.headers["x-gateway-provider"] == "b"


async def test_refused_credential_is_replaced_by_the_next_and_not_used_again(
    client: Client, upstreams: dict[str, FakeUpstream]
) -> None:
    upstreams["a"].enqueue(Reply.error(401, "bad key"))
    for _ in range(4):
        response, _ = await client.chat(model="keys")
        assert response.status == 200
    used = [seen.headers["authorization"] for seen in upstreams["a"].seen]
    assert len(used) == 5
    assert len(set(used[1:])) == 1, "the refused credential was used again"
    assert used[0] not in used[1:]


@pytest.mark.slow
async def test_a_rotated_file_is_used_without_a_restart(
    client: Client, upstreams: dict[str, FakeUpstream], tmp_path: Path, gateway: Gateway
) -> None:
    await client.chat(model="rotating")
    fresh = tmp_path / "fresh"
    fresh.write_text("sk-upstream-new-0123456789")
    fresh.rename(tmp_path / "rotated")
    before = gateway.providers["rotating"][0]
    await until(lambda: gateway.providers["rotating"][0] is not before)
    await client.chat(model="rotating")
    used = [seen.headers["authorization"] for seen in upstreams["a"].seen]
    assert used == ["Bearer sk-upstream-old-0123456789", "Bearer sk-upstream-new-0123456789"]


@pytest.mark.slow
async def test_a_refused_credential_is_tried_again_as_soon_as_its_file_has_changed(
    client: Client, upstreams: dict[str, FakeUpstream], tmp_path: Path, gateway: Gateway
) -> None:
    upstreams["a"].enqueue(Reply.error(401, "bad key"))
    response, _ = await client.chat(model="rotating")
    assert response.status == 502
    response, document = await client.chat(model="rotating")
    assert (response.status, document["error"]["code"]) == (502, "upstream_auth_error")
    assert len(upstreams["a"].seen) == 1, "the refused credential was used again"
    (tmp_path / "rotated").write_text("sk-upstream-mended-0123456789")
    await until(lambda: gateway.health.all_closed)
    response, _ = await client.chat(model="rotating")
    assert response.status == 200


async def test_hedge_closes_the_connection_of_the_slower_attempt(
    client: Client, upstreams: dict[str, FakeUpstream], ledger: Ledger
) -> None:
    upstreams["a"].enqueue(Reply.silence())
    response, text, failure = await client.stream(model="raced")
    assert (response.status, failure) == (200, None)
    assert text.endswith("data: [DONE]\n\n")
    await until(lambda: upstreams["a"].seen[0].outcome == "left")
    await ledger.drain()
    [line] = [line async for line in ledger.lines("acme") if line.kind == "use"]
    assert line.json_form()["attempts"] == 2


async def test_workers_share_what_an_upstream_says_of_a_credential(
    client: Client, gateway: Gateway, upstreams: dict[str, FakeUpstream], settings: Settings, store: Store
) -> None:
    async with another(gateway, settings, store) as other:
        upstreams["a"].enqueue(Reply.error(401, "bad key"))
        await client.chat(model="alone")
        await until(lambda: not other.health.all_closed)
        [sick] = [str(circuit.key) for circuit in other.health.all() if circuit.cause]
        assert sick == "a#1"
    async with another(gateway, settings, store) as late:
        await until(lambda: not late.health.all_closed)


async def test_failures_that_one_machine_meets_do_not_close_the_target_on_another(
    client: Client, gateway: Gateway, upstreams: dict[str, FakeUpstream], settings: Settings, store: Store
) -> None:
    async with another(gateway, settings, store) as other:
        for number in range(5):
            upstreams["a"].enqueue(Reply.error(500, "no"))
            await client.chat(model="alone", user=f"u{number}")
        assert (await client.chat(model="alone"))[0].status == 503
        upstreams["b"].enqueue(Reply.error(401, "bad key"))
        await client.chat(model="roomy")
        await until(lambda: not other.health.all_closed)
        assert {str(circuit.key) for circuit in other.health.all() if circuit.cause} == {"b#1"}


@asynccontextmanager
async def another(gateway: Gateway, settings: Settings, store: Store) -> AsyncIterator[Gateway]:
    """A second worker on the same store."""
    other = await Gateway.build(settings, await Store.open(store.address), pepper=b"0" * 32, plugins=gateway.plugins)
    try:
        await asyncio.sleep(0)
        yield other
    finally:
        await other.close()


@pytest.mark.parametrize("way", ["empty", "missing", "no text", "too long"])
async def test_old_secret_stays_in_use_while_its_file_is_invalid(
    client: Client, upstreams: dict[str, FakeUpstream], tmp_path: Path, gateway: Gateway, way: str
) -> None:
    rotated = tmp_path / "rotated"
    old = gateway.providers["rotating"][0]
    rotated.unlink()
    if way != "missing":
        rotated.write_bytes({"empty": b"", "no text": b"\xff\xfe", "too long": b"x" * 70_000}[way])
    await gateway.renew({"rotating"})
    response, _ = await client.chat(model="rotating")
    assert response.status == 200
    assert gateway.providers["rotating"][0] is old
    assert old not in gateway._retired
    rotated.write_text("sk-upstream-new-0123456789")
    assert gateway.secrets.look() == {"rotating"}
    await gateway.renew({"rotating"})
    await client.chat(model="rotating")
    used = [seen.headers["authorization"] for seen in upstreams["a"].seen]
    assert used == ["Bearer sk-upstream-old-0123456789", "Bearer sk-upstream-new-0123456789"]


async def test_a_secret_that_changes_while_its_provider_is_created_is_read_by_the_next_check(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = instances.build_providers

    async def slowly(*args: Any, **kwargs: Any) -> Any:
        made = await build(*args, **kwargs)
        (tmp_path / "rotated").write_text("sk-upstream-newer-0123456789")
        return made

    monkeypatch.setattr(composition, "build_providers", slowly)
    await gateway.renew({"rotating"})
    assert gateway.secrets.look() == {"rotating"}


async def test_a_secret_that_changes_during_a_reload_does_not_bring_the_old_settings_back(
    gateway: Gateway, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, waits = instances.build_providers, iter([100, 0])

    async def slowly(*args: Any, **kwargs: Any) -> Any:
        await turns(next(waits))
        return await build(*args, **kwargs)

    monkeypatch.setattr(composition, "build_providers", slowly)
    models = {name: model for name, model in settings.models.items() if name != "rotating"}
    providers = {name: provider for name, provider in settings.providers.items() if name != "rotating"}
    fewer = structs.replace(settings, models=models, providers=providers)
    await asyncio.gather(gateway.renew({"rotating"}), gateway.reload(fewer))
    assert set(gateway.providers) == set(providers)
    assert gateway.secrets.look() == set()


@pytest.mark.parametrize("answer", [None, "text", {"choices": []}], ids=repr)
async def test_a_plugin_that_returns_a_wrong_type_is_a_failed_attempt(
    client: Client, gateway: Gateway, upstreams: dict[str, FakeUpstream], monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    provider: Any = type(gateway.providers["a"][0])
    chat = provider.chat

    async def odd(self: Any, request: Any, target: Any) -> Any:
        return answer if target.provider == "a" else await chat(self, request, target)

    monkeypatch.setattr(provider, "chat", odd)
    response, _ = await client.chat()
    assert (response.status, response.headers["x-gateway-provider"]) == (200, "b")
    response, document = await client.chat(model="alone")
    assert (response.status, document["error"]["code"]) == (502, "upstream_error")


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
async def test_a_provider_that_never_ends_a_call_does_not_keep_it_forever(
    client: Client, gateway: Gateway, settings: Settings, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    async def forget(*_: object) -> Any:
        await asyncio.Future()
        yield

    async def forget_whole(*_: object) -> Any:
        await asyncio.Future()

    provider = type(gateway.providers["a"][0])
    patience = 0.1
    monkeypatch.setattr(provider, "stream_chat", forget)
    monkeypatch.setattr(provider, "chat", forget_whole)
    hasty = structs.replace(settings.models["alone"], total_timeout=patience)
    await gateway.reload(structs.replace(settings, models={**settings.models, "alone": hasty}))
    asking = asyncio.create_task(client.chat(model="alone", stream=stream))
    await until(lambda: gateway.active_calls._calls)
    began = time.monotonic()
    await until(asking.done)
    assert time.monotonic() - began > patience, "not before its time"
    response, document = await asking
    assert (response.status, document["error"]["code"]) == (504, "upstream_timeout")
    assert {circuit.in_flight for circuit in gateway.health.all()} == {0}


async def test_a_call_whose_only_target_opens_its_circuit_during_admission_is_refused_and_holds_nothing(
    client: Client, gateway: Gateway, upstreams: dict[str, FakeUpstream], ledger: Ledger
) -> None:
    admit = gateway.ledger.admit

    async def meanwhile(*args: Any) -> Any:
        gateway.health.circuit("a", 0, "alone", "chat").open("failures", time.monotonic(), 30.0)
        return await admit(*args)

    gateway.ledger.admit = meanwhile  # type: ignore[method-assign, assignment]
    for stream in (False, True):
        gateway.health.circuit("a", 0, "alone", "chat").recovered()
        response, document = await client.chat(model="alone", stream=stream)
        assert (response.status, document["error"]["code"]) == (503, "service_unavailable")
    assert upstreams["a"].seen == []
    assert not any([line.amount async for line in ledger.lines("acme") if line.kind == "use"])
    await until(lambda: not gateway.active_calls._calls)

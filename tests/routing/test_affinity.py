"""Calls of a session keep their target and credential, in all workers, without a state that they share.

`test_sessions_keep_their_caches` plays 1,000 sessions of 8 turns on upstreams with a prefix cache for each credential:
3 targets with 2 credentials each, and 4 routers, which stand for the workers of 2 machines. Of the tokens that a single
target would read from its cache they read 100 %, without affinity 46 %. If a target is away in the fourth and the fifth
turn they read 95 %, because only its sessions lose their caches; without affinity 47 %.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from gateway import Chat, ChatChunk, Provider
from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.config.toml_reader import SettingsError
from gateway.metrics import Metrics
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.request_adaptation import adapt
from gateway.routing.router import Candidate, Router
from gateway.schemas.chat_request import decode_chat_request
from gateway.schemas.native_request import MESSAGES, RESPONSES, NativeRequest

TARGETS, CREDENTIALS, ROUTERS, SESSIONS, TURNS = 3, 2, 4, 1000, 8
WEIGHTS = {"a": 3, "b": 2, "c": 1}

Place = tuple[str, int]  # provider and number of the credential


class Named(Provider, Chat):
    name = "named"
    chat_fields = frozenset({"prompt_cache_key"})

    async def stream_chat(self, request: Any, target: Any) -> Any:
        yield ChatChunk.text("x")


def router(
    weights: Mapping[str, int] = WEIGHTS, *, credentials: int = CREDENTIALS, seed: int = 7, **model: Any
) -> Router:
    document = {
        "providers": {name: {"plugin": "fake"} for name in weights},
        "models": {
            "m": {
                "targets": [{"provider": name, "weight": weight} for name, weight in weights.items()],
                "free": True,
                **model,
            }
        },
    }
    providers: dict[str, dict[int, Provider]] = {
        name: {number: Named(None, None) for number in range(credentials)}  # type: ignore[arg-type]
        for name in weights
    }
    catalog = Catalog.build(parse(document, demo=True))
    return Router(catalog, providers, health=CircuitRegistry(Metrics()), rng=random.Random(seed))


def order(of: Router, session: str) -> list[Place]:
    return [place(one) for one in of.resolve(of.catalog.models["m"], Chat, session)]


def place(candidate: Candidate) -> Place:
    return candidate.target.provider, candidate.circuit.above.key.credential  # type: ignore[union-attr]


def set_failing(of: Router, provider: str, *, fails: bool) -> None:
    for circuit in of.health.all():
        if circuit.key.provider == provider and circuit.key.model:
            if fails:
                circuit.apply("failures", time.monotonic(), 1000.0)
            else:
                circuit.recovered()
            of.health._note(circuit.key, circuit.cause)


@pytest.mark.holds("routing.md#order-1")
def test_every_router_finds_the_same_order_and_the_next_session_another() -> None:
    first, second = router(seed=1), router(seed=2)
    orders = [order(first, f"s{number}") for number in range(100)]
    assert orders == [order(second, f"s{number}") for number in range(100)]
    assert orders == [order(first, f"s{number}") for number in range(100)]
    assert len({tuple(one) for one in orders}) > 50 and all(len(set(one)) == 6 for one in orders)


@pytest.mark.holds("routing.md#order-1")
def test_load_follows_the_weights_and_the_credentials_share_them() -> None:
    of, count = router(), 12_000
    first = Counter(order(of, f"s{number}")[0] for number in range(count))
    for name, weight in WEIGHTS.items():
        for credential in range(CREDENTIALS):
            assert first[name, credential] == pytest.approx(count * weight / 6 / CREDENTIALS, rel=0.06)


@pytest.mark.holds("routing.md#order-2")
def test_sessions_of_a_failed_target_spread_over_the_others_and_no_other_moves() -> None:
    of, names = router(), [f"s{number}" for number in range(6000)]
    before = {name: order(of, name)[0] for name in names}
    set_failing(of, "a", fails=True)
    during = {name: order(of, name)[0] for name in names}
    set_failing(of, "a", fails=False)
    after = {name: order(of, name)[0] for name in names}
    assert after == before
    assert all(during[name] == before[name] for name in names if before[name][0] != "a")
    moved = Counter(during[name][0] for name in names if before[name][0] == "a")
    assert set(moved) == {"b", "c"} and moved["b"] / moved["c"] == pytest.approx(2, rel=0.1)


def test_one_failed_credential_moves_its_sessions_only() -> None:
    of, names = router(), [f"s{number}" for number in range(2000)]
    before = {name: order(of, name)[0] for name in names}
    circuit = next(
        one for one in of.health.all() if one.key.provider == "a" and one.key.credential == 1 and one.key.model
    )
    circuit.apply("limited", time.monotonic(), 1000.0)
    of.health._note(circuit.key, circuit.cause)
    during = {name: order(of, name)[0] for name in names}
    assert all(during[name] == before[name] for name in names if before[name] != ("a", 1))
    assert len({during[name] for name in names if before[name] == ("a", 1)}) == 5


@pytest.mark.holds("routing.md#order-1")
def test_without_affinity_or_session_the_strategy_decides() -> None:
    without = router(affinity="none")
    assert len({tuple(order(without, "s1")) for _ in range(50)}) > 1
    assert len({tuple(order(router(seed=number), "")) for number in range(50)}) > 1


@pytest.mark.holds("routing.md#order-1")
def test_order_of_the_file_stays_and_the_session_chooses_the_credential() -> None:
    of = router(strategy="in_order")
    orders = [order(of, f"s{number}") for number in range(40)]
    assert {tuple(name for name, _ in one) for one in orders} == {("a", "a", "b", "b", "c", "c")}
    assert {one[0][1] for one in orders} == {0, 1}
    assert orders == [order(of, f"s{number}") for number in range(40)]


def test_equal_targets_of_one_model_have_their_own_sessions() -> None:
    document = {
        "providers": {"a": {"plugin": "fake"}},
        "models": {"m": {"targets": [{"provider": "a"}, {"provider": "a"}], "free": True}},
    }
    provider = Named(None, None)  # type: ignore[arg-type]
    of = Router(Catalog.build(parse(document, demo=True)), {"a": {0: provider}})
    [group, twin] = of._capable("m", Chat)
    assert group.candidates[0].place != twin.candidates[0].place


def test_unknown_affinity_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="affinity"):
        router(affinity="sometimes")


class Caches:
    """The prefix caches of upstreams: tokens by credential and session, and how many were read from them."""

    def __init__(self) -> None:
        self.kept: dict[Place, dict[str, int]] = defaultdict(dict)
        self.read: Counter[str] = Counter()  # by session
        self.calls: Counter[Place] = Counter()

    def call(self, where: Place, session: str, prompt: int) -> None:
        kept = self.kept[where]
        self.calls[where] += 1
        self.read[session] += min(kept.get(session, 0), prompt)
        kept[session] = max(kept.get(session, 0), prompt)


def play(
    routers: list[Router], *, away: range = range(0), affinity: bool = True
) -> tuple[Caches, dict[str, set[Place]]]:
    """All sessions, turn by turn, each turn in another worker; target `a` is away in the turns of `away`."""
    caches, places, chosen = Caches(), defaultdict[str, set[Place]](set), random.Random(3)
    for turn in range(TURNS):
        for one in routers:
            set_failing(one, "a", fails=turn in away)
        for number in range(SESSIONS):
            session = f"session-{number}"
            where = order(chosen.choice(routers), session if affinity else "")[0]
            caches.call(where, session, 20_000 + 2_000 * turn)
            places[session].add(where)
    return caches, places


@pytest.mark.holds("routing.md#order-1", "routing.md#order-2")
def test_sessions_keep_their_caches() -> None:
    weights = dict.fromkeys("abc", 1)
    routers = [router(weights, seed=number) for number in range(ROUTERS)]
    single = sum(20_000 + 2_000 * turn for turn in range(TURNS - 1)) * SESSIONS
    kept, _ = play(routers)
    spread, _ = play(routers, affinity=False)
    failed, places = play(routers, away=range(3, 5))
    shares = [sum(caches.read.values()) / single for caches in (kept, spread, failed)]
    assert shares[0] >= 0.99 and shares[1] < 0.5
    by_target = Counter[str]()
    for (name, _), calls in kept.calls.items():
        by_target[name] += calls
    for name in weights:
        assert by_target[name] == pytest.approx(SESSIONS * TURNS / TARGETS, rel=0.1)
    # With a target away: its sessions lose their cache once, all others read as much as from a single target.
    moved = {session for session, seen in places.items() if len(seen) > 1}
    whole = single // SESSIONS
    assert all(failed.read[session] == whole for session in places.keys() - moved)
    assert len(moved) == pytest.approx(SESSIONS / TARGETS, rel=0.1) and shares[2] > 0.9, shares


@pytest.mark.holds("api.md#sessions-3")
@pytest.mark.parametrize(
    ("takes", "fields", "dialect", "sent"),
    [
        (True, {}, "", b'"session-1"'),
        (False, {}, "", None),
        (True, {"prompt_cache_key": "own"}, "", b'"own"'),
        (True, {}, RESPONSES, b'"session-1"'),
        (True, {}, MESSAGES, None),
    ],
)
def test_session_goes_upstream_where_the_provider_takes_it(
    takes: bool, fields: dict[str, str], dialect: str, sent: bytes | None
) -> None:
    of = router({"a": 1}, credentials=1)
    [candidate] = of.resolve(of.catalog.models["m"], Chat, "x")
    candidate.provider.takes_cache_key = takes  # type: ignore[attr-defined]
    body = json.encode({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields})
    request = decode_chat_request(body)
    if dialect:
        request.native = NativeRequest(dialect, {})
    [adapted] = adapt(request, [candidate], Chat, unknown_params="drop", cache_key="session-1")
    native = adapted.request.native
    field = (native.fields if native is not None else adapted.request.fields).get("prompt_cache_key")
    assert (bytes(field) if field is not None else None) == sent and not adapted.dropped
    assert "prompt_cache_key" not in request.fields or fields

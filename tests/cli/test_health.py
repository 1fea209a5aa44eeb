"""`gateway models --health` and `gateway plugins` tell what the running gateway found out."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from gateway.metrics import Metrics
from gateway.routing.circuit_breaker import Circuit, CircuitKey
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.circuit_sync import CircuitSync, read_circuit_events
from gateway.store import Store
from tests.cli.conftest import Terminal
from tests.polling import until


def found_out(socket: Path, *opened: tuple[CircuitKey, str]) -> None:
    """A worker opens those circuits and tells."""

    async def worker() -> None:
        store = await Store.open(socket)
        health = CircuitRegistry(Metrics())
        CircuitSync(health, store)
        for place, cause in opened:
            circuit: Circuit = health.circuit(place.provider, max(place.credential, 0), place.model or "x")
            while circuit.key != place:
                assert circuit.above is not None
                circuit = circuit.above
            circuit.open(cause, time.monotonic(), 30.0)  # type: ignore[arg-type]  # one of the causes

        async def told() -> bool:
            return len(await read_circuit_events(store)) == len(opened)

        await until(told)  # and it runs on: a worker that stops takes back what it told
        await store.close()

    asyncio.run(worker())


def test_health_shows_each_target_and_the_end_of_its_open_circuit(terminal: Terminal, valkey: Path) -> None:
    found_out(valkey, (CircuitKey("fake", 0, "a"), "failures"))
    rows = terminal.json("models", "--health")
    states = {(row["model"], row["upstream_model"]): (row["state"], row["cause"]) for row in rows}
    assert states == {
        ("fake-chat", "fake-chat"): ("ok", ""),
        ("other", "a"): ("open", "failures"),
        ("other", "other"): ("ok", ""),
    }
    assert all(row["until"].endswith("Z") for row in rows if row["state"] == "open")
    assert "failures" in terminal.ok("models", "--health")


def test_refused_credential_is_shown_for_all_its_targets(terminal: Terminal, valkey: Path) -> None:
    found_out(valkey, (CircuitKey("fake", 0), "credential"))
    assert {row["cause"] for row in terminal.json("models", "--health")} == {"credential"}


def test_a_quarantined_plugin_is_shown_with_its_reason(terminal: Terminal, valkey: Path) -> None:
    found_out(valkey, (CircuitKey("fake"), "plugin"))
    [report] = [report for report in terminal.json("plugins") if report["name"] == "fake"]
    assert report["state"] == "quarantined"
    assert "provider fake keeps failing" in report["reason"]


def test_without_circuit_events_all_circuits_are_closed(terminal: Terminal) -> None:
    assert {row["state"] for row in terminal.json("models", "--health")} == {"ok"}
    assert {report["state"] for report in terminal.json("plugins")} == {"active"}


def test_plugins_are_shown_without_a_store(terminal: Terminal, tmp_path: Path) -> None:
    config = tmp_path / "elsewhere.toml"
    config.write_text(f'[store]\nurl = "unix://{tmp_path}/nobody"\n[providers.fake]\nplugin = "fake"\n')
    result = terminal.run("plugins", "--config", str(config))
    assert result.exit_code == 0
    assert "not known" in result.stderr

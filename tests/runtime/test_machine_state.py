"""What a gateway says of itself: its processes, its limits, its reloads, and the errors of its store."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec
import pytest

from gateway.admin.machine_state import MachineState, Resource
from gateway.admin.machines import HASH, read_machines
from gateway.config.configuration import Configuration
from gateway.config.loader import demo_settings
from gateway.errors import StoreFate, StoreUnavailable
from gateway.errors.unavailable import STORE_ERRORS
from gateway.metrics import Metrics, Totals
from gateway.metrics.process import ProcessMetrics, open_descriptors
from gateway.metrics.readings import Rates
from gateway.runtime.machine_metrics import MachineMetrics
from gateway.runtime.machine_report import MachineReport
from gateway.runtime.reloads import Reloads
from tests.polling import until
from tests.runtime.test_reloads import File
from tests.world import OpenWorld


def text_of(metrics: Metrics) -> str:
    """The exposition of one process."""
    totals, delta = Totals(), metrics.drain()
    assert delta is not None
    totals.merge(delta, source="x")
    return totals.text()[0].decode()


@pytest.mark.skipif(not open_descriptors(), reason="this system does not tell how many descriptors are open")
def test_process_notes_its_processor_time_memory_descriptors_and_lag() -> None:
    metrics = Metrics()
    process = ProcessMetrics(metrics, "worker-0")
    process.note(0.5)
    read, write = os.pipe()
    try:
        assert open_descriptors() >= 2
    finally:
        os.close(read)
        os.close(write)
    text = text_of(metrics)
    assert 'gateway_process_loop_lag_seconds{process="worker-0"} 0.5' in text
    for name in ("cpu_seconds_total", "resident_bytes", "descriptors", "descriptors_limit"):
        [value] = [line.split()[1] for line in text.splitlines() if line.startswith(f"gateway_process_{name}{{")]
        assert float(value) > 0


def test_descriptors_are_counted_as_they_are_opened() -> None:
    before = open_descriptors()
    if not before:
        pytest.skip("this system does not tell how many descriptors are open")
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(7)]
    try:
        assert open_descriptors() >= before + 7
    finally:
        for number in opened:
            os.close(number)


def test_store_errors_are_counted_by_their_fate_once() -> None:
    STORE_ERRORS.clear()
    metrics = Metrics()
    for fate in (StoreFate.REFUSED, StoreFate.REFUSED, StoreFate.NEVER_SENT):
        with contextlib.suppress(StoreUnavailable):
            raise StoreUnavailable(fate=fate)
    metrics.store_errors()
    metrics.store_errors()
    text = text_of(metrics)
    assert 'gateway_store_errors_total{fate="refused"} 2.0' in text
    assert 'gateway_store_errors_total{fate="never_sent"} 1.0' in text


def test_resource_without_a_limit_has_no_series_of_it() -> None:
    metrics = Metrics()
    metrics.capacity("store_bytes", 5, 0)
    metrics.capacity("connections_v1", 5, 10)
    text = text_of(metrics)
    assert 'gateway_capacity_used{resource="store_bytes"} 5.0' in text
    assert 'gateway_capacity_limit{resource="connections_v1"} 10.0' in text
    assert 'gateway_capacity_limit{resource="store_bytes"}' not in text


def test_rates_are_of_the_time_between_two_readings_and_a_new_counter_has_none() -> None:
    rates = Rates()
    assert rates.read({("a",): 5.0}) == {"a": 0.0}
    second = rates.read({("a",): 1e9, ("b",): 3.0})
    assert second["a"] > 1 and second["b"] == 0


async def test_reload_that_is_refused_is_a_result_with_its_reason_until_one_is_used(tmp_path: Path) -> None:
    results: list[str] = []
    file = File(tmp_path / "gateway.toml")
    file.reloads = Reloads(Configuration.read(file.path), file._send, results.append)
    file.begin()
    file.path.write_text("[models.x]\nprovider = 1\n")
    await file.reloads.run(force=False)
    assert "provider" in file.reloads.problem and file.reloads.problem_at > 0
    await file.reload("b")
    assert file.reloads.problem == ""
    fingerprint = await file.reload("c")
    file.reloads.refused(3, fingerprint, b"")
    assert file.reloads.problem.startswith("worker 3 could not use it")
    assert results == ["refused", "used", "used", "refused"]


async def test_entry_of_a_machine_in_the_store_has_its_state_and_follows_a_reload(world: OpenWorld) -> None:
    async with world() as w:
        settings = demo_settings()
        state = MachineState(reports=True, in_flight=3, resources=(Resource("store_bytes", 1.0, 2.0),))
        states = [state]
        report = MachineReport("1", settings, lambda: states[0])
        running = asyncio.create_task(report.run(w.store))

        async def shown() -> MachineState | None:
            found = await read_machines(w.store)
            return found[0].state if found else None

        async def is_first() -> bool:
            return await shown() == state

        async def is_second() -> bool:
            return await shown() == states[0]

        await until(is_first)
        states[0] = msgspec.structs.replace(state, reload_problem="no price")
        report.changed()
        await until(is_second)
        running.cancel()
        await asyncio.wait([running])


async def test_entry_of_an_older_release_has_no_state(world: OpenWorld) -> None:
    async with world() as w:
        await w.store.client.hset(
            HASH, "1", '{"id":"1","name":"old","configuration":"a","version":"0","at":9999999999}'
        )
        [found] = await read_machines(w.store)
        assert found.state == MachineState() and not found.state.reports


async def test_state_has_what_processes_and_supervisor_report(world: OpenWorld, tmp_path: Path) -> None:
    async with world() as w:
        metrics = MachineMetrics(demo_settings())
        worker = Metrics()
        ProcessMetrics(worker, "worker-0").note(0.25)
        worker.begun("chat")
        worker.set("gateway_upstream_calls", ("fake",), 2.0)
        worker.set("gateway_models_unavailable", ("m",), 1.0)
        worker.set("gateway_accounts_below", ("floor",), 4.0)
        worker.capacity("connections_v1", 5, 10)
        delta = worker.drain()
        metrics.add("worker-0-1", msgspec.msgpack.encode(delta))
        await metrics._measure(tmp_path, w.store)
        metrics.reloaded("refused")
        file = File(tmp_path / "gateway.toml")
        file.reloads.problem = "no price"
        found = metrics.state([], None, file.reloads)
        assert (found.in_flight, found.upstream_calls, found.models_unavailable) == (1, {"fake": 2}, ("m",))
        assert (found.below_floor, found.reload_problem, found.store_up) == (4, "no price", False)
        assert [one.lag for one in found.processes if one.name == "worker-0"] == [0.25]
        resources = {one.name: one for one in found.resources}
        assert resources["connections_v1"] == Resource("connections_v1", 5.0, 10.0)
        assert (
            resources["store_bytes"].used > 0
            and 0 < resources["data_dir_bytes"].used <= resources["data_dir_bytes"].limit
        )
        metrics.measure([], None, None)
        text = metrics.text("")[0].decode()
        assert 'gateway_reloads_total{result="refused"} 1.0' in text
        assert "gateway_reload_successful 0.0" in text and found.reports

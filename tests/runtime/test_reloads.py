"""Reloads that follow one another quickly: the last one is used, and a refusal never takes back another one."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from gateway.config.configuration import Configuration
from gateway.runtime.console import Console
from gateway.runtime.ipc import Message, WorkerSpec
from gateway.runtime.reloads import Reloads
from gateway.runtime.worker import Worker
from tests.polling import until

TEXT = """
[store]
data_dir = "data"

[providers.fake]
plugin = "fake"

[models.{name}]
provider = "fake"
price = {{ input = 1, output = 1 }}
"""


class File:
    """A configuration file, and the models of what was sent to the workers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("a")
        self.sent: list[str] = []
        self.reloads = Reloads(Configuration.read(path), self._send)

    def write(self, name: str) -> None:
        self.path.write_text(TEXT.format(name=name))

    def _send(self, payload: bytes) -> None:
        self.sent += msgspec.msgpack.decode(payload, type=Configuration).settings().models

    def begin(self) -> None:
        self.reloads.begin(cast(Any, None))

    async def reload(self, name: str) -> bytes:
        """Write it and reload; its fingerprint."""
        self.write(name)
        await self.reloads.run(force=False)
        return self.reloads.configuration.fingerprint


async def test_reload_reads_included_files_and_refuses_them_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = File(tmp_path / "gateway.toml")
    file.path.write_text('include = ["conf.d/*.toml"]\n' + file.path.read_text())
    (tmp_path / "conf.d").mkdir()
    file.begin()
    part = tmp_path / "conf.d" / "b.toml"
    part.write_text('[models.b]\nprovider = "fake"\nfree = true\n')
    await file.reloads.run(force=False)
    assert file.sent == ["a", "b"]
    part.write_text('[models.a]\nprovider = "fake"\nfree = true\n')
    await file.reloads.run(force=False)
    assert f"{part}: models.a: stands in {file.path} too" in caplog.text
    part.write_text("[models.b]\nfree = 1\n")
    await file.reloads.run(force=False)
    assert f"{part}: models.b.free: expected bool, got int" in caplog.text
    assert file.sent == ["a", "b"]


async def test_refusal_of_a_configuration_that_was_replaced_changes_nothing(tmp_path: Path) -> None:
    file = File(tmp_path / "gateway.toml")
    file.begin()
    first = await file.reload("b")
    await file.reload("c")
    file.reloads.refused(0, first, first)
    assert file.sent == ["b", "c"]
    assert list(file.reloads.settings.models) == ["c"]


@pytest.mark.holds("operations/start.md#reload-1")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_refused_configurations_lead_back_to_the_one_before_both(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    file = File(tmp_path / "gateway.toml")
    file.begin()
    fingerprints = [await file.reload("b"), await file.reload("c")]
    for number in order:
        for worker in range(2):
            file.reloads.refused(worker, fingerprints[number], b"")
    assert file.sent[-1] == "a"
    assert list(file.reloads.settings.models) == ["a"]
    await file.reload("b")  # what made it unusable may be gone
    assert file.sent[-1] == "b"


async def test_last_of_many_reloads_at_once_is_used_and_few_are_sent(tmp_path: Path) -> None:
    file = File(tmp_path / "gateway.toml")
    running = []
    for number in range(50):
        file.write(f"m{number}")
        running.append(asyncio.create_task(file.reloads.run(force=False)))
        await asyncio.sleep(0)
    file.begin()
    await asyncio.gather(*running)
    assert file.sent == ["m49"]


async def test_reload_during_the_start_is_done_at_its_end(tmp_path: Path) -> None:
    file = File(tmp_path / "gateway.toml")
    early = asyncio.create_task(file.reload("b"))
    await asyncio.sleep(0)
    assert file.sent == []
    file.begin()
    await early
    assert file.sent == ["b"]


async def test_refusal_leads_back_to_the_last_configuration_that_every_worker_took(tmp_path: Path) -> None:
    file = File(tmp_path / "gateway.toml")
    file.begin()
    taken = await file.reload("b")
    file.reloads.used([taken, taken])
    half = await file.reload("c")
    file.reloads.used([taken, half])
    refused = await file.reload("d")
    for worker in range(2):
        file.reloads.refused(worker, refused, taken)
    assert file.sent == ["b", "c", "d", "b"]


async def test_refusal_of_the_unchanged_text_that_every_worker_took_leads_to_no_older_one(tmp_path: Path) -> None:
    file = File(tmp_path / "gateway.toml")
    file.begin()
    taken = await file.reload("b")
    file.reloads.used([taken, taken])
    assert await file.reload("b") == taken
    for worker in range(2):
        file.reloads.refused(worker, taken, taken)
    assert file.sent == ["b", "b"]
    assert list(file.reloads.settings.models) == ["b"]


async def test_log_names_the_worker_that_serves_with_another_configuration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = File(tmp_path / "gateway.toml")
    file.begin()
    taken = await file.reload("b")
    file.reloads.used([taken, taken])
    old = sha256(file.path.read_bytes()).hexdigest()[:12]
    new = await file.reload("c")
    file.reloads.refused(0, new, taken)
    file.reloads.refused(1, taken, new)  # it used the new one, and cannot go back
    file.reloads.refused(0, taken, taken)
    remedy = "; correct what its line `reload failed` names, then reload"
    assert caplog.messages[-3:] == [
        f"worker 0 refused the new configuration sha256:{new.hex()[:12]}; all workers return to sha256:{old}{remedy}",
        f"worker 1 could not return to the configuration sha256:{old} and still serves with sha256:{new.hex()[:12]}"
        f"{remedy}",
        f"worker 0 could not load the configuration sha256:{old} again and goes on with what it had loaded{remedy}",
    ]


class SlowGateway:
    """Takes each reload when the test lets it."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.begun = 0
        self.proceed = asyncio.Event()

    async def reload(self, settings: Any) -> None:
        self.begun += 1
        await self.proceed.wait()
        (name,) = settings.models
        if name.startswith("bad"):
            raise ValueError(name)
        self.used.append(name)


@pytest.mark.parametrize(
    ("names", "used", "refused"),
    [
        (("bad1", "b", "c"), ["c"], []),
        (("b", "bad1", "bad2"), ["b"], ["bad2"]),
    ],
)
async def test_worker_uses_the_newest_and_refuses_only_the_newest(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], used: list[str], refused: list[str]
) -> None:
    told: list[tuple[str, bytes]] = []
    monkeypatch.setattr("gateway.runtime.worker.log.set_level", lambda level: None)
    worker, gateway = Worker(WorkerSpec(0, -1, -1)), SlowGateway()
    worker.gateway = cast(Any, gateway)
    worker._tell = lambda name, payload=b"": told.append((name, payload))  # type: ignore[method-assign]
    worker._built.set()
    sent = {name: Configuration("gateway.toml", TEXT.format(name=name).encode(), demo=False) for name in names}
    for configuration in sent.values():
        worker._receive(Message("reload", msgspec.msgpack.encode(configuration)))
    await until(lambda: gateway.begun == 1)
    gateway.proceed.set()
    await until(lambda: not worker._tasks)
    assert gateway.used == used
    assert [told_of for told_of in told if told_of[0] == "reload refused"] == [
        ("reload refused", sent[name].fingerprint) for name in refused
    ]
    assert [fingerprint for name, fingerprint in told if name == "reloaded"] == [
        sent[name].fingerprint for name in used
    ]


async def test_console_applies_the_last_reload_that_arrived_while_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.runtime.console.log.set_level", lambda level: None)
    console, used = Console(cast(Any, None), cast(Any, None)), []

    class Services:
        def use(self, settings: Any) -> None:
            used.extend(settings.models)

    for name in ("b", "c"):
        configuration = Configuration("gateway.toml", TEXT.format(name=name).encode(), demo=False)
        console._receive(Message("reload", msgspec.msgpack.encode(configuration)))
    console._begin(cast(Any, Services()))
    await until(lambda: used)
    await asyncio.gather(*console._tasks)
    assert used == ["c"]


async def test_reload_names_each_changed_limit_that_takes_a_restart_and_applies_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = File(tmp_path / "gateway.toml")
    file.begin()
    file.path.write_text(
        "[server]\nport = 8085\nproxy_protocol = true\ntrusted_proxies = ['10.0.0.1']\ntags = ['team']\n"
        "[server.limits]\nheader_timeout = 3\ncommit_after = 4\nspool_dir = 'up'\nmax_memory = 99\nmax_loop_lag = 2\n"
        "[log]\nform = 'text'\naccess = false\n" + TEXT.format(name="a")
    )
    await file.reloads.run(force=False)
    named = [record.getMessage().split(" ")[0] for record in caplog.records if "takes a restart" in record.getMessage()]
    limits = ["server.limits.header_timeout", "server.limits.spool_dir", "server.limits.commit_after"]
    assert named == ["server.port", "server.proxy_protocol", *limits, "log.form"]
    assert file.reloads.settings.server.limits.max_memory == 99

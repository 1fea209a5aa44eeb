"""Who manages the process decides how long it serves on, and systemd is told when it serves and when it stops."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.toml_reader import SettingsError
from gateway.runtime.process_manager import Systemd, notify, shutdown_delay, watchdog_interval


@pytest.mark.holds("operations/start.md#signals-1")
@pytest.mark.parametrize(
    ("settings", "environment", "delay"),
    [
        ({}, {}, 0.0),
        ({}, {"NOTIFY_SOCKET": "/run/systemd/notify"}, 5.0),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 5.0),
        ({}, {"NOTIFY_SOCKET": "", "KUBERNETES_SERVICE_HOST": ""}, 0.0),
        ({"shutdown_delay": "auto"}, {"NOTIFY_SOCKET": "@x"}, 5.0),
        ({"shutdown_delay": 0}, {"NOTIFY_SOCKET": "/run/systemd/notify"}, 0.0),
        ({"shutdown_delay": 12}, {}, 12.0),
    ],
)
def test_delay_is_that_of_the_settings_else_five_seconds_where_a_supervisor_asks_for_it(
    settings: dict[str, object], environment: dict[str, str], delay: float
) -> None:
    assert shutdown_delay(parse({"server": settings}).server, environment) == delay


@pytest.mark.parametrize("value", [-1, 3601, "5s", True, ""])
def test_other_delays_are_refused(value: object) -> None:
    with pytest.raises(SettingsError, match="shutdown_delay: expected seconds from 0 to 3600"):
        parse({"server": {"shutdown_delay": value}})


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_is_told_a_state(tmp_path: Path, is_abstract: bool) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{path}" if is_abstract else path)
        notify({"NOTIFY_SOCKET": f"@{path}" if is_abstract else path}, "READY=1")
        systemd.settimeout(5.0)
        assert systemd.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    ("environment", "interval"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        (
            {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
            0.0,
        ),  # for the process that started this one
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_watchdog_gets_two_messages_in_its_time(environment: dict[str, str], interval: float) -> None:
    assert watchdog_interval(environment) == interval


async def test_systemd_gets_no_reload_before_the_end_of_the_start_nor_after_a_stop(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")

    async def work() -> None:
        done.append(True)

    done: list[bool] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.setblocking(False)
        systemd = Systemd({"NOTIFY_SOCKET": path})
        await systemd.reloads(work)
        systemd.serves()
        assert listener.recv(100) == b"READY=1"
        systemd.stops()
        assert listener.recv(100) == b"STOPPING=1"
        await systemd.reloads(work)
        with pytest.raises(BlockingIOError):
            listener.recv(100)
    assert done == [True, True]


async def test_systemd_gets_ready_when_the_last_of_two_overlapping_reloads_has_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.setblocking(False)
        systemd = Systemd({"NOTIFY_SOCKET": path})
        systemd.serves()
        assert listener.recv(100) == b"READY=1"
        async with asyncio.TaskGroup() as group:
            reload = group.create_task(systemd.reloads(lambda: first))
            group.create_task(systemd.reloads(lambda: second))
            await asyncio.sleep(0)
            assert listener.recv(100).startswith(b"RELOADING=1")
            assert listener.recv(100).startswith(b"RELOADING=1")
            first.set_result(None)
            await reload
            with pytest.raises(BlockingIOError):
                listener.recv(100)
            second.set_result(None)
        assert listener.recv(100) == b"READY=1"


@contextmanager
def busy_listener(path: str) -> Iterator[socket.socket]:
    """A socket at `path` whose queue is full."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filling,
    ):
        listener.bind(path)
        listener.setblocking(False)
        filling.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                filling.sendto(b"x", path)
        yield listener


def test_message_is_sent_without_blocking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorded(socket.socket):
        def sendto(self, *arguments: Any) -> int:
            timeouts.append(self.gettimeout())
            return super().sendto(*arguments)

    timeouts: list[float | None] = []
    with busy_listener(str(tmp_path / "notify")):
        monkeypatch.setattr(socket, "socket", Recorded)
        assert not notify({"NOTIFY_SOCKET": str(tmp_path / "notify")}, "WATCHDOG=1")
    assert timeouts == [0.0]


async def test_states_arrive_in_order_when_a_busy_systemd_reads_again(tmp_path: Path) -> None:
    async def work() -> None:
        pass

    with busy_listener(str(tmp_path / "notify")) as listener:
        systemd = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        systemd.serves()
        await systemd.reloads(work)
        systemd.stops()
        states: list[bytes] = []
        async with asyncio.timeout(60.0):
            while len(states) < 4:
                with suppress(BlockingIOError):
                    while True:
                        if (message := listener.recv(100)) != b"x":
                            states.append(message.split(b"\n")[0])
                await asyncio.sleep(0)
    assert states == [b"READY=1", b"RELOADING=1", b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", ["", "relative", "/no/such/socket"])
def test_nothing_happens_where_systemd_does_not_listen(address: str) -> None:
    assert notify({"NOTIFY_SOCKET": address}, "READY=1")

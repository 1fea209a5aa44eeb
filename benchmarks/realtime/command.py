"""Memory of silent realtime sessions and CPU of talking ones: `python -m benchmarks realtime`.

A client opens sessions through the gateway, with one worker, and through a relay that only passes messages on. The
upstream, the client and what is measured run as processes of their own. Silent sessions have got `session.created`. In
a talking one the client sends 100 ms of audio each 200 ms, and gets as much; a response has 15 parts, and the next one
is asked for at once. An event is one message in one direction.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import aiohttp
import click
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.processes import cpu_seconds, module_of, tree
from benchmarks.realtime.upstream import AUDIO, EVERY
from benchmarks.start import prepare
from gateway.testing.ports import free_ports
from gateway.testing.running import running_gateway

CONFIG = """
[server.websocket]
max_per_account = 100000
max_per_address = 100000

[providers.up]
plugin = "openai"
base_url = "{upstream}/v1"
api_key = "file:{key}"

[models.rt]
provider = "up"
endpoints = ["realtime"]
price = {{ input = 4, output = 16, audio_input = 32, audio_output = 64 }}
default_reserve_output = 100
"""
OPENING = 50  # handshakes at a time
STARTS_WITHIN = 20.0  # seconds
SETTLES = 5.0  # seconds between opening and measuring
APPEND = json.dumps({"type": "input_audio_buffer.append", "audio": AUDIO})
CREATE = '{"type":"response.create"}'


class Crowd:
    """The sessions of one client process, and the events that they have had."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}
        self.events = 0

    async def open(self, stack: AsyncExitStack, count: int) -> list[aiohttp.ClientWebSocketResponse]:
        """Open so many sessions; each has got its first event."""
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        turns = asyncio.Semaphore(OPENING)

        async def once() -> aiohttp.ClientWebSocketResponse:
            async with turns:
                wire = await session.ws_connect(self._url, headers=self._headers, max_msg_size=1 << 25, autoclose=False)
                await wire.receive(timeout=60)
                return wire

        wires = await asyncio.gather(*(once() for _ in range(count)))
        for wire in wires:
            stack.push_async_callback(wire.close)
        return wires

    async def talk(self, wire: aiohttp.ClientWebSocketResponse) -> None:
        """Talk on one session until the task is cancelled."""
        speaking = asyncio.create_task(self._speak(wire))
        try:
            await wire.send_str(CREATE)
            self.events += 1
            async for message in wire:
                self.events += 1
                if '"response.done"' in message.data[:40]:
                    await wire.send_str(CREATE)
                    self.events += 1
            raise click.ClickException(f"a session was closed with {wire.close_code}")
        finally:
            speaking.cancel()

    async def _speak(self, wire: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await asyncio.sleep(EVERY)
            await wire.send_str(APPEND)
            self.events += 1


@click.command()
@click.option("--silent", default=1000, show_default=True, type=click.IntRange(1, 20_000), help="Silent sessions.")
@click.option("--talking", default=200, show_default=True, type=click.IntRange(1, 5000), help="Talking sessions.")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(1, 600), help="Measured time.")
def realtime(*, silent: int, talking: int, seconds: float) -> None:
    """Measure the memory of silent sessions and the CPU of an event of talking ones."""
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 120)
    prepare()
    table = Table(title="Realtime sessions", title_justify="left")
    for column in ("", f"memory of {silent:,} silent, KiB each", f"{talking} talking, events/s", "CPU of an event, µs"):
        table.add_column(column, justify="right" if table.columns else "left")
    with _program("benchmarks.realtime.upstream") as upstream:
        for name, serving in (("gateway, one worker", _gateway), ("relay of aiohttp", _relay)):
            messages.print(name, markup=False)
            with serving(upstream) as (url, key, pid):
                memory, rate, cpu = uvloop.run(_measure(url, key, pid, silent, talking, seconds))
            table.add_row(name, f"{memory / 1024:.1f}", f"{rate:,.0f}", f"{cpu * 1e6:.0f}")
    tables.print(table)
    tables.print(f"load of the machine in the last minute: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")


async def _measure(
    url: str, key: str, pid: int, silent: int, talking: int, seconds: float
) -> tuple[float, float, float]:
    """Bytes of a silent session, events a second, and seconds of CPU of an event, of process `pid`."""
    crowd = Crowd(url, key)
    async with AsyncExitStack() as stack:  # what the first sessions import and fill is not theirs
        await crowd.open(stack, 20)
    await asyncio.sleep(SETTLES)
    before = _rss(pid)
    async with AsyncExitStack() as stack:
        await crowd.open(stack, silent)
        await asyncio.sleep(SETTLES)
        memory = (_rss(pid) - before) / silent
    await asyncio.sleep(SETTLES)
    async with AsyncExitStack() as stack:
        wires = await crowd.open(stack, talking)
        tasks = [asyncio.create_task(crowd.talk(wire)) for wire in wires]
        await asyncio.sleep(SETTLES)
        events, cpu, began = crowd.events, _cpu(pid), time.monotonic()
        await asyncio.sleep(seconds)
        events, cpu, took = crowd.events - events, _cpu(pid) - cpu, time.monotonic() - began
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.wait(tasks)
    return memory, events / took, cpu / events


def _rss(pid: int) -> int:
    [stat] = [stat for stat in tree([pid]) if stat.pid == pid]
    return stat.rss


def _cpu(pid: int) -> float:
    [stat] = [stat for stat in tree([pid]) if stat.pid == pid]
    return cpu_seconds(stat)


@contextmanager
def _gateway(upstream: str) -> Iterator[tuple[str, str, int]]:
    """Address, key and worker of a gateway."""
    key = Path(__file__).with_name("upstream.key")
    key.write_text("sk-upstream", encoding="utf-8")
    key.chmod(0o600)
    try:
        with running_gateway(CONFIG.format(upstream=upstream, key=key)) as gateway:
            [worker] = [stat.pid for stat in tree([gateway.pid]) if module_of(stat.pid).endswith("worker")]
            yield f"{gateway.base_url}/realtime?model=rt", gateway.api_key, worker
    finally:
        key.unlink()


@contextmanager
def _relay(upstream: str) -> Iterator[tuple[str, str, int]]:
    """The same of the relay, which needs no key."""
    with _started("benchmarks.realtime.relay", upstream) as (url, pid):
        yield f"{url}/v1/realtime?model=rt", "none", pid


@contextmanager
def _program(module: str) -> Iterator[str]:
    with _started(module) as (url, _):
        yield url


@contextmanager
def _started(module: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """Address and process of a program that listens on a free port."""
    [port] = free_ports(1)
    process = subprocess.Popen([sys.executable, "-m", module, str(port), *arguments])
    try:
        _await_port(port)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(10)


def _await_port(port: int) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)

"""How many commands a change of one key over the admin API sends to the store.

A real gateway serves the checkout with its console process. The commands are those that clients send, without those of
scripts, and without the question whether the change is on the store's disk, which is asked once for each change.
"""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import redis

from benchmarks.checkout import Checkout
from benchmarks.contenders.contender import Place, Running
from benchmarks.contenders.gateway import GatewayAt, command
from benchmarks.cores import available_cores, share_out
from benchmarks.fault import BenchFault
from benchmarks.structure.monitor import monitored
from benchmarks.upstream import mock_upstream
from gateway.testing.ports import free_ports

CONFIRMING = {"INFO", "WAIT", "WAITAOF", "CONFIG"}
CHANGES = 5  # the first also loads scripts
CHANGE = {"max_cost": "1.5", "addresses": ["10.0.0.0/8"]}
READY_WITHIN = 30.0  # seconds


class _WithConsole(GatewayAt):
    """The gateway of a checkout with its console process."""

    def __init__(self, checkout: Checkout, port: int) -> None:
        super().__init__(str(checkout.root))
        self._port = port

    def further_settings(self) -> str:
        return f"[console]\nport = {self._port}\n"


def commands_of_a_key_change(checkout: Checkout) -> list[str]:
    """The names of the commands, in their order."""
    cores = share_out(available_cores(), workers=1)
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, mock_upstream(Path(name), cores=cores.load) as upstream:
        place = Place(Path(name), cores=cores, upstream=upstream, models=("mock",))
        contender = _WithConsole(checkout, port)
        with contender.running(place) as server:
            config, env = place.folder / "gateway.toml", contender.environment(place)
            scopes = ("--scopes", "read,accounts,keys,credits")
            token = command(contender.command(), config, env, "tokens", "create", "bench", *scopes).split()[-1]
            _await_console(port)
            return _change(port, token, server)


def _change(port: int, token: str, server: Running) -> list[str]:
    """The commands of the change with the fewest: a task of the background may send some during the others."""
    with redis.Redis(unix_socket_path=server.store_socket) as client:
        client.ping()
        return min((_commands(port, token, client, server.store_socket) for _ in range(CHANGES)), key=len)


def _commands(port: int, token: str, client: redis.Redis, store: str) -> list[str]:
    """The names of the commands that clients send while a new key is changed."""
    key = _ask(port, token, "POST", "/admin/v1/accounts/bench/keys", {"rpm": 5})["id"]
    lines = monitored(store, client, lambda: _ask(port, token, "PATCH", f"/admin/v1/keys/{key}", CHANGE))
    names = [line.split(b'"')[1].decode().upper() for line in lines if b'] "' in line and b" lua]" not in line]
    return [name for name in names if name not in CONFIRMING]


def _ask(port: int, token: str, method: str, path: str, body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_WITHIN)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    if response.status not in (200, 201):
        raise BenchFault(f"{method} {path}: status {response.status}: {text[:300].decode(errors='replace')}")
    return json.loads(text)


def _await_console(port: int) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise BenchFault("the console does not listen") from None
            time.sleep(0.05)

"""A trio of sentinels and a six-node cluster on loopback, from the server program at hand.

::

    with sentinel_trio(folder) as trio:     # trio.url, trio.fail_over()
    with six_nodes(folder) as cluster:      # cluster.url, cluster.fail_over()

Both know `fail_over(behind=0.3)`: the replica is cut off for so many seconds, then its master is killed, so that
everything settled in between is lost to the one that takes over. It returns when the topology is whole again.
Sharp edge: the nodes need a second or two to notice a death; that is configured, as short as they take it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.store.embedded.binary import find_server
from gateway.testing.ports import free_ports

SERVICE = "orders"
PASSWORD = "s3cret/of:all"
URL_PASSWORD = "s3cret%2Fof%3Aall"
SLOTS = 16384
SHARE = SLOTS // 3
HOLD_DOWN = 1000  # ms after which a silent node counts as dead


class Node:
    """One server process on a loopback port."""

    def __init__(self, folder: Path, port: int, **settings: object) -> None:
        self.port = port
        self.folder = folder / str(port)
        self.folder.mkdir()
        self.settings = settings
        self.sentinel = False
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **more: object) -> None:
        settings = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "logfile": self.folder / "log"}
        settings |= {name.replace("_", "-"): value for name, value in (self.settings | more).items()}
        command = [str(find_server(None)[0])]
        if self.sentinel:
            command += [str(self.folder / "sentinel.conf"), "--sentinel"]
        else:
            for name, value in settings.items():
                command += [f"--{name}", *str(value).split(" ")] if value != "" else [f"--{name}", ""]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._serves)

    def _serves(self) -> bool:
        """Whether it answers; AssertionError with its log if it has ended."""
        assert self.process is not None
        log = self.folder / "log"
        assert self.process.poll() is None, log.read_text() if log.exists() else "it has ended"
        return self.answers()

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def restart(self) -> None:
        """End it as an operator does, and start it."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait()
        self.start()

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def running(self) -> bool:
        return self.process is not None

    @property
    def client(self) -> redis.Redis:
        login: dict[str, Any] = {} if self.sentinel else {"password": PASSWORD}
        return redis.Redis(
            port=self.port,
            socket_timeout=2,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=False,
            **login,
        )

    def ask(self, *command: object) -> Any:
        with self.client as client:
            return client.execute_command(*command)

    def info(self) -> dict[str, object]:
        with self.client as client:
            return client.info()

    def answers(self) -> bool:
        try:
            return bool(self.ask("PING"))
        except (redis.ConnectionError, redis.TimeoutError):
            return False


class Topology:
    """What both have in common: data nodes of which some are masters, and how a master fails."""

    url: str
    nodes: list[Node]

    def fail_over(self, *, behind: float = 0.0) -> float:
        """Kill a master whose replica is `behind` seconds behind; how long there was none."""
        master = self.victim()
        replica = self.replica_of(master)
        if behind:
            replica.signal(signal.SIGSTOP)  # or it would come back for what it missed
            master.ask("CLIENT", "KILL", "TYPE", "replica")
            time.sleep(behind)
        master.end()
        if behind:
            replica.signal(signal.SIGCONT)
        started = time.monotonic()
        until(lambda: self.promoted(replica), within=30.0)
        took = time.monotonic() - started
        self.bring_back(master, replica)
        until(self.whole, within=30.0)
        return took

    def stop(self) -> None:
        for node in self.nodes:
            if node.running:
                node.end()

    def victim(self) -> Node:
        raise AssertionError

    def replica_of(self, master: Node) -> Node:
        raise AssertionError

    def promoted(self, replica: Node) -> bool:
        raise AssertionError

    def bring_back(self, master: Node, replica: Node) -> None:
        raise AssertionError

    def whole(self) -> bool:
        """Whether all is as it should be; a node that changes its role hangs up on whoever asks it just then."""
        try:
            return self._whole()
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def _whole(self) -> bool:
        raise AssertionError


class SentinelTrio(Topology):
    """A master, a replica, and three sentinels that watch them."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(5)
        login = {"requirepass": PASSWORD, "masterauth": PASSWORD}
        self.nodes = [Node(folder, port, **DATA, **login) for port in ports[:2]]
        self.sentinels = [Node(folder, port) for port in ports[2:]]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports[2:])
        self.url = f"redis+sentinel://:{URL_PASSWORD}@{hosts}/{SERVICE}/2"

    def start(self) -> None:
        master, replica = self.nodes
        master.start()
        replica.start(replicaof=f"127.0.0.1 {master.port}")
        for sentinel in self.sentinels:
            sentinel.sentinel = True
            (sentinel.folder / "sentinel.conf").write_text(
                f"port {sentinel.port}\nbind 127.0.0.1\ndir {sentinel.folder}\nlogfile {sentinel.folder / 'log'}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 2\n"
                f"sentinel auth-pass {SERVICE} {PASSWORD}\n"
                f"sentinel down-after-milliseconds {SERVICE} {HOLD_DOWN}\n"
                f"sentinel failover-timeout {SERVICE} 3000\n"
            )
            sentinel.start()
        until(self.whole, within=30.0)

    def stop(self) -> None:
        for sentinel in self.sentinels:
            sentinel.end()
        super().stop()

    def victim(self) -> Node:
        return next(node for node in self.nodes if node.running and node.info()["role"] == "master")

    def replica_of(self, master: Node) -> Node:
        return next(node for node in self.nodes if node is not master)

    def named(self) -> set[int]:
        """The ports of the master, as each sentinel has it."""
        return {int(s.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for s in self.sentinels}

    def promoted(self, replica: Node) -> bool:
        return self.named() == {replica.port} and replica.info()["role"] == "master"

    def bring_back(self, master: Node, replica: Node) -> None:
        master.start(replicaof=f"127.0.0.1 {replica.port}")

    def _whole(self) -> bool:
        """The replica follows, and every sentinel sees the other two and the replica."""
        master = self.victim()
        if self.replica_of(master).info().get("master_link_status") != "up" or self.named() != {master.port}:
            return False
        return all(self._sees(sentinel) for sentinel in self.sentinels)

    def _sees(self, sentinel: Node) -> bool:
        flat = sentinel.ask("SENTINEL", "MASTER", SERVICE)
        if not isinstance(flat, dict):
            flat = dict(zip(flat[::2], flat[1::2], strict=True))
        told = {text(name): text(value) for name, value in flat.items()}
        replicas = sentinel.ask("SENTINEL", "REPLICAS", SERVICE)
        flags = [text(dict(zip(one[::2], one[1::2], strict=True))[b"flags"]) for one in replicas]
        return told["num-other-sentinels"] == "2" and told["flags"] == "master" and flags == ["slave"]


class SixNodes(Topology):
    """Three masters with a replica each."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        ports = free_ports(12)
        elsewhere = {} if address == "127.0.0.1" else {"bind": "0.0.0.0", "cluster_announce_ip": address}
        options = {
            **elsewhere,
            "cluster_enabled": "yes",
            "cluster_node_timeout": HOLD_DOWN,
            "cluster_replica_validity_factor": 0,
            "cluster_require_full_coverage": "no",
            "requirepass": PASSWORD,
            "masterauth": PASSWORD,
        }
        self.nodes = [
            Node(folder, port, **DATA, **options, cluster_port=bus)
            for port, bus in zip(ports[:6], ports[6:], strict=True)
        ]
        self.url = f"redis+cluster://:{URL_PASSWORD}@" + ",".join(f"{address}:{node.port}" for node in self.nodes[:3])
        self._next = 0

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        for number, node in enumerate(self.nodes[:3]):
            last = SLOTS if number == 2 else SHARE * (number + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", SHARE * number, last - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        first = self.nodes[0]
        for node in self.nodes[1:]:
            first.ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.settings["cluster_port"])
        until(lambda: all(len(self._known(node)) == len(self.nodes) for node in self.nodes), within=20.0)
        for master, replica in zip(self.nodes[:3], self.nodes[3:], strict=True):
            until(lambda master=master, replica=replica: self._replicates(replica, master), within=20.0)
        until(self.whole, within=30.0)

    def _replicates(self, replica: Node, master: Node) -> bool:
        try:
            return bool(replica.ask("CLUSTER", "REPLICATE", text(master.ask("CLUSTER", "MYID"))))
        except redis.ResponseError:  # it has not heard of its master yet
            return False

    def _known(self, node: Node) -> list[str]:
        lines = node.ask("CLUSTER", "NODES")
        table = lines if isinstance(lines, dict) else text(lines).splitlines()
        return [str(line) for line in table]

    def victim(self) -> Node:
        masters = [node for node in self.nodes if node.info()["role"] == "master"]
        self._next += 1
        return masters[self._next % len(masters)]

    def replica_of(self, master: Node) -> Node:
        return next(node for node in self.nodes if node.info().get("master_port") == master.port)

    def restart_each(self) -> None:
        """Restart the replicas, then each master, whose replica takes over before."""
        masters = [node for node in self.nodes if node.info()["role"] == "master"]
        for node in self.nodes:
            if node not in masters:
                node.restart()
                until(self.whole, within=30.0)
        for master in masters:
            replica = self.replica_of(master)
            replica.ask("CLUSTER", "FAILOVER")
            until(lambda replica=replica: self.promoted(replica), within=30.0)
            until(self.whole, within=30.0)
            master.restart()
            until(self.whole, within=30.0)

    def promoted(self, replica: Node) -> bool:
        return replica.info()["role"] == "master" and b"cluster_state:ok" in self._state(replica)

    def bring_back(self, master: Node, replica: Node) -> None:
        master.start()

    def _whole(self) -> bool:
        """Three masters, three replicas that follow, and everybody content."""
        told = [node.info() for node in self.nodes]
        links = [one.get("master_link_status") for one in told if one["role"] == "slave"]
        if links != ["up"] * 3:
            return False
        return all(b"cluster_state:ok" in self._state(node) for node in self.nodes) and not any(
            "fail" in text(node.client.execute_command("CLUSTER NODES", NEVER_DECODE=True)) for node in self.nodes
        )

    def _state(self, node: Node) -> bytes:
        state = node.ask("CLUSTER", "INFO")
        return b"\n".join(f"{k}:{v}".encode() for k, v in state.items()) if isinstance(state, dict) else state


DATA = {
    "save": "",
    "appendonly": "yes",
    "repl_diskless_sync_delay": 0,
    "repl_diskless_sync": "yes",
    "repl_timeout": 5,
    "maxmemory_policy": "noeviction",
}


@contextmanager
def sentinel_trio(folder: Path) -> Iterator[SentinelTrio]:
    """A trio that is ready."""
    with _started(SentinelTrio(folder)) as trio:
        yield trio


@contextmanager
def six_nodes(folder: Path, address: str = "127.0.0.1") -> Iterator[SixNodes]:
    """A cluster that is ready; `address`: of this machine, under which others reach it."""
    with _started(SixNodes(folder, address)) as cluster:
        yield cluster


@contextmanager
def _started(topology):
    try:
        topology.start()
        yield topology
    finally:
        topology.stop()


def until(condition: Callable[..., object], *, within: float = 30.0) -> None:
    """Wait for it; a node that is not there yet is no reason to give up."""
    deadline = time.monotonic() + within
    while True:
        try:
            if condition():
                return
        except (redis.ConnectionError, redis.TimeoutError, StopIteration):
            pass
        assert time.monotonic() < deadline, f"not true within {within} s"
        time.sleep(0.02)


def text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

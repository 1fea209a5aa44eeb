"""Network namespaces: one for each gateway, linked to the namespace of all other parts.

A gateway has two links. By the first one it reaches nginx, the store and the clients; by the second one, only the
upstream, so that its egress can break while everything else works. The caller must be in a network namespace of its own
(`unshare --net --mount`): nothing here touches the machine's.
"""

from __future__ import annotations

import subprocess

UPSTREAM = "10.9.0.9"  # where the upstream listens
STORE = "10.8.0.1"  # where the nodes of the cluster listen
FRONT = "10.7.0.1"  # where nginx listens
CALLS, CONSOLE, SIDE = 8080, 8081, 9090  # the ports of a gateway, as conf/proxies has them


def ip(*arguments: str) -> None:
    """Run `ip`; it must succeed."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def prepare() -> None:
    """The addresses of the parts that are not gateways."""
    subprocess.run(["mkdir", "-p", "/run/netns"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "netns", "/run/netns"], check=True)
    ip("link", "set", "lo", "up")
    for address in (UPSTREAM, STORE, FRONT):
        ip("addr", "add", f"{address}/32", "dev", "lo")


class Namespace:
    """The network of the gateway of a number from 1 on; its address is that of conf/proxies/nginx.conf."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"node{number}"
        self.address = f"10.0.0.{number}"

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that runs there."""
        return ["ip", "netns", "exec", self.name]

    def create(self) -> None:
        """Make it with both links."""
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")
        self._link("svc", self.address, f"10.0.1.{self.number}")
        self._link("egress", f"10.2.0.{self.number}", f"10.2.1.{self.number}")
        for target in (STORE, FRONT):
            ip("-n", self.name, "route", "add", target, "via", f"10.0.1.{self.number}", "dev", "svc")
        ip("-n", self.name, "route", "add", UPSTREAM, "via", f"10.2.1.{self.number}", "dev", "egress")

    def _link(self, name: str, address: str, other: str) -> None:
        here = self._outside(name)
        ip("link", "add", here, "type", "veth", "peer", "name", name, "netns", self.name)
        ip("addr", "add", other, "peer", address, "dev", here)
        ip("link", "set", here, "up")
        ip("-n", self.name, "addr", "add", address, "peer", other, "dev", name)
        ip("-n", self.name, "link", "set", name, "up")

    def _outside(self, name: str) -> str:
        """The end of a link that is outside the namespace."""
        return f"{name}{self.number}"

    def break_egress(self) -> None:
        """Every packet to the upstream, and from it, is lost without an answer."""
        ip("link", "set", self._outside("egress"), "down")

    def mend_egress(self) -> None:
        """Packets arrive again."""
        ip("link", "set", self._outside("egress"), "up")

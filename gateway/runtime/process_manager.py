"""What manages the gateway's process: systemd, an orchestrator, or somebody at a terminal.

`shutdown_delay` says how long the gateway serves on after it was told to stop. `notify` tells systemd when it serves
and when it stops (`sd_notify`); it does nothing elsewhere.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

from gateway.config.settings import ServerSettings

NOTIFY_SOCKET = "NOTIFY_SOCKET"  # set by systemd for units with Type=notify
KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set in each container of Kubernetes
MANAGED_DELAY = 5.0  # seconds; a balancer that asks every two seconds has seen two refusals by then


def shutdown_delay(server: ServerSettings, environment: Mapping[str, str]) -> float:
    """Seconds in which the gateway serves on although `/readyz` says that it stops."""
    if isinstance(server.shutdown_delay, float):
        return server.shutdown_delay
    return MANAGED_DELAY if environment.get(NOTIFY_SOCKET) or environment.get(KUBERNETES) else 0.0


def notify(environment: Mapping[str, str], state: str) -> None:
    """Tell systemd a state, such as `READY=1`; without systemd, or if it does not listen, nothing happens."""
    address = environment.get(NOTIFY_SOCKET, "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)

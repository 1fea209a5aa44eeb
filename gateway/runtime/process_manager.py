"""What manages the gateway's process: systemd, an orchestrator, or somebody at a terminal.

`shutdown_delay` says how long the gateway serves on after it was told to stop. `Systemd` tells systemd when it serves,
reloads and stops, and that it is alive (`sd_notify`); it does nothing elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from gateway.config.settings import ServerSettings

NOTIFY_SOCKET = "NOTIFY_SOCKET"  # set by systemd for units with Type=notify
WATCHDOG_USEC, WATCHDOG_PID = "WATCHDOG_USEC", "WATCHDOG_PID"  # set by systemd for units with WatchdogSec
KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set in each container of Kubernetes
RETRY_INTERVAL = 0.1  # seconds between two attempts to send a state while systemd's queue is full
MAX_UNSENT = 16  # states; only the last ones say what the process does
MANAGED_DELAY = 5.0  # seconds; a balancer that asks every two seconds has seen two refusals by then


def shutdown_delay(server: ServerSettings, environment: Mapping[str, str]) -> float:
    """Seconds in which the gateway serves on although `/readyz` says that it stops."""
    if isinstance(server.shutdown_delay, float):
        return server.shutdown_delay
    return MANAGED_DELAY if environment.get(NOTIFY_SOCKET) or environment.get(KUBERNETES) else 0.0


def notify(environment: Mapping[str, str], state: str) -> bool:
    """Tell systemd a state, such as `READY=1`, without blocking. Returns False if systemd's queue is full.

    Without systemd, or if it does not listen, nothing happens.
    """
    address = environment.get(NOTIFY_SOCKET, "")
    if not address.startswith(("/", "@")):
        return True
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


class Systemd:
    """What systemd knows of this process. Its environment says where systemd listens, and whether it does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._serves = False
        self._reloads = 0  # that run now
        self._unsent: deque[str] = deque(maxlen=MAX_UNSENT)
        self._is_waiting = False  # for systemd to read

    def serves(self) -> None:
        """The start is over."""
        self._serves = True
        self._tell("READY=1")

    def stops(self) -> None:
        """It was told to stop, or cannot go on."""
        self._serves = False
        self._tell("STOPPING=1")

    async def reloads(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do a reload. systemd gets READY when no reload runs any more.

        During the start or the stop it gets no message, because a message would end that state.
        """
        if self._serves:
            microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self._tell(f"RELOADING=1\nMONOTONIC_USEC={microseconds}")
        self._reloads += 1
        try:
            await work()
        finally:  # if the reload has failed, the old configuration still runs
            self._reloads -= 1
            if self._serves and not self._reloads:
                self._tell("READY=1")

    def _tell(self, state: str) -> None:
        """Send a state after those that wait for systemd. No later message repeats a lost state."""
        self._unsent.append(state)
        if not self._is_waiting:
            self._send_unsent()

    def _send_unsent(self) -> None:
        self._is_waiting = False
        while self._unsent:
            if not notify(self._environment, self._unsent[0]):
                self._is_waiting = True
                asyncio.get_running_loop().call_later(RETRY_INTERVAL, self._send_unsent)
                return
            self._unsent.popleft()

    async def send_watchdog_messages(self) -> None:
        """Tell the watchdog twice in its time that the event loop runs; returns at once without a watchdog."""
        interval = watchdog_interval(self._environment)
        while interval:
            notify(self._environment, "WATCHDOG=1")  # a lost one is repeated after the interval
            await asyncio.sleep(interval)


def watchdog_interval(environment: Mapping[str, str]) -> float:
    """Seconds between two messages to the watchdog; 0 where systemd expects none from this process."""
    microseconds = environment.get(WATCHDOG_USEC, "")
    if environment.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid()) or not microseconds.isdecimal():
        return 0.0
    return int(microseconds) / 2 / 1e6

"""Tells the other machines which configuration this one uses, and the audit trail what a reload has changed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from gateway.admin.configuration_changes import change_event
from gateway.admin.machine_state import MachineState
from gateway.admin.machines import EVERY, Machine, announce, withdraw
from gateway.admin.outbox import AuditOutbox
from gateway.config.settings import Settings
from gateway.config.shared_configuration import configuration_hash
from gateway.errors import GatewayError
from gateway.store import Store
from gateway.version import __version__


class MachineReport:
    """The entry of one gateway in the store, from its start to its end."""

    def __init__(self, machine: str, settings: Settings, state: Callable[[], MachineState] = MachineState) -> None:
        self._id = machine
        self._settings = settings
        self._state = state
        self._changed = asyncio.Event()
        self._changes: list[tuple[Settings, Settings]] = []  # that are not in the audit trail yet

    @property
    def name(self) -> str:
        """What people call the machine."""
        return f"{socket.gethostname()}:{self._settings.server.port}"

    def use(self, settings: Settings) -> None:
        """Another configuration is in use."""
        self._changes.append((self._settings, settings))
        self._settings = settings
        self._changed.set()

    def changed(self) -> None:
        """Report soon."""
        self._changed.set()

    async def run(self, store: Store) -> None:
        """Report until cancelled."""
        outbox = AuditOutbox(store)
        try:
            while True:
                self._changed.clear()
                while self._changes:
                    if (event := change_event(*self._changes.pop(0))) is not None:
                        await outbox.add(event)
                with contextlib.suppress(GatewayError):  # it is written again soon
                    await announce(store, self._machine())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY):
                        await self._changed.wait()
        finally:
            await withdraw(store, self._machine())

    def _machine(self) -> Machine:
        hash_ = configuration_hash(self._settings)
        return Machine(self._id, self.name, hash_, __version__, state=self._state())

"""The gateways that share one store, each with a hash of its configuration: the same calls should cost the same on all.

Each supervisor writes its entry every `EVERY` seconds into one hash of the store; an entry that is older than
`GONE_AFTER` is of a gateway that has ended. Times are those of the store's clock.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from gateway.admin.machine_state import MachineState
from gateway.admin.times import time_text
from gateway.errors import GatewayError
from gateway.store import Store

HASH = "machines"
EVERY = 10.0  # seconds
GONE_AFTER = 60  # seconds


class Machine(Struct, frozen=True):
    """One gateway: `id` names the process, `name` its host and port, `at` is in Unix seconds."""

    id: str
    name: str
    configuration: str  # the hash
    version: str  # of the program
    at: int = 0
    state: MachineState = MachineState()

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `GET /admin/v1/machines`."""
        seen = time_text(datetime.fromtimestamp(self.at, UTC))
        return {"name": self.name, "configuration": self.configuration, "version": self.version, "seen": seen}


_decoder = msgspec.json.Decoder(Machine)


async def announce(store: Store, machine: Machine) -> None:
    """Write the entry of a gateway, and remove those of gateways that have ended. GatewayError."""
    link = store.link(HASH)
    now = await _now(store)
    await link.call("HSET", HASH, machine.id, msgspec.json.encode(msgspec.structs.replace(machine, at=now)))
    gone = [one.id for one in await _read(store) if one.at < now - GONE_AFTER]
    if gone:
        await link.call("HDEL", HASH, *gone)


async def withdraw(store: Store, machine: Machine) -> None:
    """Remove the entry of a gateway that ends; without the store it lapses."""
    with contextlib.suppress(GatewayError):
        await store.link(HASH).call("HDEL", HASH, machine.id)


async def read_machines(store: Store) -> list[Machine]:
    """The gateways that run, by name. GatewayError."""
    now = await _now(store)
    found = [one for one in await _read(store) if one.at >= now - GONE_AFTER]
    return sorted(found, key=lambda one: (one.name, one.id))


def differ(machines: list[Machine]) -> bool:
    """Whether their configurations differ."""
    return len({machine.configuration for machine in machines}) > 1


class KnownMachines:
    """The gateways as they were read last, for pages that must not wait for the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found: list[Machine] = []

    @property
    def differ(self) -> bool:
        """Whether their configurations differ."""
        return differ(self.found)

    async def refresh(self) -> list[Machine]:
        """Read them again; without the store they stay as they were."""
        with contextlib.suppress(GatewayError):
            self.found = await read_machines(self._store)
        return self.found


async def _now(store: Store) -> int:
    seconds, _ = await store.link(HASH).call("TIME")
    return int(seconds)


async def _read(store: Store) -> list[Machine]:
    """The entries that this release can decode."""
    found = []
    for text in (await store.link(HASH).call("HGETALL", HASH)).values():
        with contextlib.suppress(ValueError):
            found.append(_decoder.decode(text))
    return found

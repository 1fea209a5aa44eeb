"""What a gateway says of itself to the consoles of all machines, beside its name and its configuration.

It is a part of the machine's entry in the store. A gateway of another release may leave fields out, or have others.
"""

from __future__ import annotations

from msgspec import Struct


class ProcessState(Struct, frozen=True, omit_defaults=True):
    """One process; 0 for what the system does not report."""

    name: str  # worker-0, supervisor, console, importer
    cpu: float = 0.0  # processor cores in use
    resident: int = 0  # bytes
    descriptors: int = 0
    descriptors_limit: int = 0
    lag: float = 0.0  # seconds by which its event loop is late


class Resource(Struct, frozen=True, omit_defaults=True):
    """What is in use of a resource, and its limit; 0 for none."""

    name: str
    used: float = 0.0
    limit: float = 0.0


class MachineState(Struct, frozen=True, omit_defaults=True):
    """The state of one gateway. Times are Unix seconds, ages and lags seconds."""

    reports: bool = False  # False for a gateway of a release that reports nothing of this
    started: float = 0.0
    workers: int = 0  # that serve
    workers_wanted: int = 0
    in_flight: int = 0  # calls
    upstream_calls: dict[str, int] = {}  # by provider
    processes: tuple[ProcessState, ...] = ()
    resources: tuple[Resource, ...] = ()
    reload_problem: str = ""  # of the last reload; empty if it is in use
    reload_at: float = 0.0  # when that was
    store_up: bool = True
    database_up: bool = True
    importer_lag: float = 0.0
    importer_lines: int = 0
    importer_blocked: int = 0  # accounts
    journal_age: float = 0.0
    journal_records: int = 0
    refused_settlements: int = 0
    below_floor: int = 0  # accounts
    models_unavailable: tuple[str, ...] = ()  # the first ones
    restarts: int = 0  # of processes, since it started

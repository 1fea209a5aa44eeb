"""`/site`: how the whole site does, what is open, and what has changed lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from gateway.admin.machine_state import MachineState, Resource
from gateway.admin.machines import Machine
from gateway.attention.provider_rules import provider_page
from gateway.console.menu import HOME_OF_SITE
from gateway.console.performance_chart import performance_table
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.history.usage_sums import Period
from gateway.reports.provider_health import OpenCircuit, open_circuits
from gateway.reports.site_health import SiteHealth, site_health

#: Label, length and period of the points of each range.
RANGES: dict[str, tuple[str, timedelta, Period]] = {
    "1h": ("Last hour", timedelta(hours=1), "hour"),
    "24h": ("24 hours", timedelta(hours=24), "hour"),
    "7d": ("7 days", timedelta(days=7), "day"),
}
DEFAULT = "24h"
MOST_CIRCUITS = 10
MOST_ALERTS = 8
#: What the resources are called, in the order of the page, and whether they are bytes.
RESOURCES = {
    "connections_v1": ("Connections of clients", False),
    "body_bytes": ("Request bodies in memory", True),
    "upload_bytes": ("Uploads on the disk", True),
    "worker_bytes": ("Memory of workers", True),
    "store_bytes": ("Memory of the store", True),
    "data_dir_bytes": ("Disk of data_dir", True),
}


class Capacity(Struct, frozen=True):
    """A resource over all machines; `share` is the largest of one machine."""

    label: str
    is_bytes: bool
    used: float
    limit: float
    share: float


async def home(visit: Visit) -> Reply:
    name, (_, length, period) = chosen(visit)
    watch, now = visit.services.attention, datetime.now(UTC)
    people = await visit.people()

    async def read() -> SiteHealth:
        return await site_health(visit.actor, people.transactions, now - length, now, period)

    health = await visit.services.recent.get(("site_health", name), read)
    circuits = open_circuits(visit.settings, watch.circuits)
    values = {
        "labels": {key: label for key, (label, _, _) in RANGES.items()},
        "chosen": name,
        "health": health,
        "chart": performance_table(health.period, health.points),
        "machines": visit.services.machines.found,
        "capacity": capacity(visit.services.machines.found),
        "calls_now": sum(machine.state.in_flight for machine in visit.services.machines.found),
        "providers": provider_rows(visit, health, circuits),
        "circuits": circuits[:MOST_CIRCUITS],
        "more_circuits": max(0, len(circuits) - MOST_CIRCUITS),
        "alerts": watch.alerts[:MOST_ALERTS],
        "page_of": provider_page,
        "at": lambda seconds: datetime.fromtimestamp(seconds, UTC),
    }
    return View("site_home.html", "Home", values)


def chosen(visit: Visit) -> tuple[str, tuple[str, timedelta, Period]]:
    """The range of the address."""
    name = visit.query("range") if visit.query("range") in RANGES else DEFAULT
    return name, RANGES[name]


def provider_rows(visit: Visit, health: SiteHealth, circuits: Sequence[OpenCircuit]) -> list[dict[str, Any]]:
    """Each provider of the configuration, and those that calls name still: those with open circuits first."""
    open_ones = Counter(one.provider for one in circuits)
    calls = upstream_calls(visit.services.machines.found)
    known = visit.settings.providers
    rows = [
        {
            "name": name,
            "is_known": name in known,
            "open": open_ones[name],
            "now": calls[name],
            "served": health.providers.get(name),
        }
        for name in {*known, *health.providers}
    ]
    return sorted(rows, key=lambda row: (-row["open"], -(row["served"].calls if row["served"] else 0), row["name"]))


def upstream_calls(machines: Sequence[Machine]) -> Counter[str]:
    """The calls in progress at each provider, over all machines."""
    found: Counter[str] = Counter()
    for machine in machines:
        found.update(machine.state.upstream_calls)
    return found


def capacity(machines: Sequence[Machine]) -> list[Capacity]:
    """What is in use beside its limit, over all machines."""
    states: list[MachineState] = [machine.state for machine in machines]
    found: dict[str, list[Resource]] = {}
    for state in states:
        for one in state.resources:
            found.setdefault(one.name, []).append(one)
    return [
        Capacity(
            label,
            is_bytes,
            sum(one.used for one in found[name]),
            sum(one.limit for one in found[name]),
            max(one.used / one.limit if one.limit else 0.0 for one in found[name]),
        )
        for name, (label, is_bytes) in RESOURCES.items()
        if name in found
    ]


ROUTES = (
    PageRoute(
        method="GET",
        path=HOME_OF_SITE,
        audience="viewer",
        function=home,
        help="console#home",
        menu="Home",
        group="Overview",
    ),
)

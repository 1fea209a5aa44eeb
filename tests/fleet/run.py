"""A whole run: start, load, one fault after the other, proof, report."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from tests.fleet.faults import FAULTS, RECOVERY
from tests.fleet.fleet import Fleet, fleet_in
from tests.fleet.machines import end
from tests.fleet.proof import proved
from tests.fleet.table import count, failures, table


async def run(folder: Path, minutes: float, *, only: str, with_health: bool) -> tuple[str, bool]:
    """The report, and whether nothing failed beyond what is allowed."""
    with fleet_in(folder, with_health=with_health) as fleet:
        _say("the store and the database run")
        try:
            await fleet.start()
            _say("the fleet serves")
            fleet.begin_load()
            await _faults(fleet, minutes, only)
            await fleet.load.ended()
            await fleet.person.ended()
            with fleet.part("the prepaid account is used up"):
                await fleet.drain_prepaid()
            return await _report(fleet)
        except BaseException as error:
            for machine in fleet.machines:
                error.add_note(f"{machine.name}: {machine.gateway.text[-2000:]}")
            raise
        finally:
            await fleet.load.close()
            await fleet.person.ended()
            fleet.nginx.stop()
            await end(fleet.machines)
            await fleet.upstream.close()


async def _faults(fleet: Fleet, minutes: float, only: str) -> None:
    for fault in FAULTS:
        if only and not any(text in fault.name for text in only.split(",")):
            continue
        _say(fault.name)
        with fleet.part(fault.name, fault.sick) as part:
            part.note = await fault.act(fleet, fault.seconds(minutes), part)
            await asyncio.sleep(RECOVERY.seconds(minutes))


async def _report(fleet: Fleet) -> tuple[str, bool]:
    _say("the proof")
    found = await proved(fleet)
    served_by = fleet.nginx.served_by()
    parts = [(part, count(part, fleet.load.calls, fleet.person.pages, served_by)) for part in fleet.parts]
    lost = sum(counts.calls_failed["later"] + counts.calls_failed["elsewhere"] for _, counts in parts)
    report = "\n\n".join(
        [
            table(parts),
            failures(parts),
            "\n".join(f"- {line}" for line in found.lines),
            "\n".join(f"- FAULT: {fault}" for fault in found.faults) or "No faults.",
        ]
    )
    return report, not found.faults and not lost


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

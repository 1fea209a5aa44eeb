"""A backup of a running gateway, restored where it was and on another machine."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served
from tests.processes.test_importer import imported


async def test_backup_of_a_running_gateway_serves_again_there_and_on_another_machine(
    yard: Yard, tmp_path: Path
) -> None:
    gateway = await yard.serve()
    for _ in range(3):
        assert (await gateway.chat()).status == 200
    stream = await gateway.stream("lasting").flowing()
    folder = str(tmp_path / "backup")
    done = await gateway.command("backup", folder, "--with-pepper")
    assert (done["accounts"], done["keys"], done["pepper"]) == (1, 1, True)
    await stream.ended()
    refused = await asyncio.to_thread(gateway.run, "restore", folder, "--force")
    assert refused.returncode == 1
    assert "the gateway runs" in refused.stderr
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    await gateway.ended()
    await gateway.command("accounts", "credit", "test", "5", "--id", "lost")

    other = yard.make(name="elsewhere")
    for machine in (gateway, other):
        machine.api_key = gateway.api_key
        restored = await machine.command("restore", folder, *(["--force"] if machine is gateway else []))
        assert (restored["audit"]["mismatches"], restored["pepper"]) == ([], True)
        lost = [line["id"] for line in restored["undone"]["lost_credits"]]
        assert lost == (["lost"] if machine is gateway else [])
        await machine.started()
        assert (await machine.chat()).status == 200

        async def released(machine: Served = machine) -> bool:
            return (await machine.account()).held == 0

        await until(released)  # the stream is charged by the journal of the worker that had it
        assert len(await machine.charges()) == 5
        await imported(machine)
        report = await machine.command("audit")
        assert report["history_lines"] == report["lines"]

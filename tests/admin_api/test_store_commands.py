"""What a change over the admin API asks of the store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.services import ROOT
from tests.admin_api.client import NamedActors

#: How the store is asked whether the change is on its disk: that is once for each change, of whatever kind.
CONFIRMING = frozenset({"INFO", "WAIT", "WAITAOF", "CONFIG"})


async def commands_of(client: Any, work: Any) -> list[str]:
    """The commands that clients sent to the store while `work` ran, without those of scripts."""
    found = list[str]()
    async with client.monitor() as monitor:
        await work
        await client.execute_command("ECHO", "the end")
        async for entry in monitor.listen():
            command = str(entry["command"])
            if "the end" in command:
                return found
            if entry["client_type"] != "lua":
                found.append(command.split(" ")[0].upper())
    raise AssertionError("the store ended")


@pytest.mark.parametrize(
    ("method", "path", "body", "most"),
    [
        ("PATCH", "/keys/{key}", {"max_cost": "1.5", "addresses": ["10.0.0.0/8"]}, 5),
        ("PATCH", "/keys/{key}", {"name": "other"}, 5),
        ("GET", "/keys/{key}", None, 3),
        ("POST", "/keys/{key}/revoke", None, 8),
    ],
)
async def test_change_of_a_key_reads_it_once(api: Any, method: str, path: str, body: Any, most: int) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        client, commands = a.services.store.store.client, list[str]()
        for _ in range(2):  # the first one also loads the scripts and opens connections
            key = await a.services.store.keys.create("acme", rpm=5)
            commands = await commands_of(client, a.ask(method, path.format(key=key.id), body, token="root"))
        asked = [name for name in commands if name not in CONFIRMING]
        assert len(asked) <= most, commands
        assert asked.count("HGETALL") <= (2 if "revoke" in path else 1), commands

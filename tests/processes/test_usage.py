"""`GET /v1/usage` of a whole gateway: what a call was charged is in its account's usage, and in no other's."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import aiohttp
import pytest

from gateway.amounts import NANO
from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served

pytestmark = pytest.mark.slow


async def usage(gateway: Served, key: str, query: str) -> Any:
    """The document; None while the console process, which reads the database, is not up yet."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20.0)) as session,
        session.get(f"{gateway.base_url}/usage?{query}", headers={"Authorization": f"Bearer {key}"}) as response,
    ):
        if response.status == 503:
            return None
        assert response.status == 200, await response.text()
        return await response.json()


async def test_calls_of_a_key_are_in_the_usage_of_its_account_only(yard: Yard) -> None:
    [port] = free_ports(1)
    gateway = yard.make(console_port=port)
    await gateway.started()
    gateway.create_key()
    await gateway.command("accounts", "create", "umbra")
    other = (await gateway.command("keys", "create", "umbra"))["key"]
    for _ in range(3):
        assert (await gateway.chat()).status == 200

    async def imported() -> Any:
        document = await usage(gateway, gateway.api_key, "group_by=hour,model,key")
        return document if document is not None and document["total"]["calls"] == 3 else None

    document = await until(imported)
    charged = -sum(line.amount for line in await gateway.charges())
    assert (document["object"], document["account"]) == ("usage", "test")
    assert Decimal(document["total"]["amount"]) == Decimal(charged) / NANO
    assert {row["model"] for row in document["data"]} == {"quick"}
    assert sum(row["calls"] for row in document["data"]) == 3
    assert (await usage(gateway, other, "group_by=model"))["data"] == []

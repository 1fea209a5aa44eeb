"""docs/admin-api.md: its table is that of the code, and its webhook works."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from gateway.admin.times import FIRST_YEAR, LAST_YEAR
from gateway.admin_api.access import Access
from gateway.admin_api.api import READS_AT_ONCE, SHARE
from gateway.admin_api.table import ROUTES
from gateway.testing.ports import free_ports
from gateway.web.fair_turns import MOST_OF_ONE
from gateway.web.request_limits import CHECKS, EXPORTS, IMPORTS, REPORTS, RUNNING
from tests.admin_api.conftest import api, database_url, settings
from tests.polling import until

__all__ = ["api", "database_url", "settings"]

PAGE = (Path(__file__).parents[2] / "docs" / "admin-api.md").read_text(encoding="utf-8")


def needed(access: Access) -> str:
    """The third column of the table."""
    if access.public:
        return "no token"
    if access.scope is None:
        return "any token"
    if access.operators_only:
        return "operator"
    also = " or `read`" if access.reads else f" and `{access.also}`" if access.also else ""
    return f"`{access.scope}`{also}{' of the site' if access.needs_site else ''}"


def test_table_has_every_route_with_its_scopes() -> None:
    rows = [(route.method, route.path, needed(route.access), route.summary) for route in ROUTES]
    table = "".join(f"| `{method}` | `{path}` | {who} | {summary} |\n" for method, path, who, summary in rows)
    assert table in PAGE, f"the table should be:\n{table}"


def test_table_of_limits_has_every_route_with_a_limit() -> None:
    rows = []
    for limit in (REPORTS, EXPORTS, IMPORTS, RUNNING, CHECKS):
        paths = ", ".join(f"`{route.method} {route.path}`" for route in ROUTES if route.limit is limit)
        rows.append(f"| {paths} | {limit.most} | {limit.most_of_site} |\n")
    assert "".join(rows) in PAGE, rows
    assert sum(route.limit is not None for route in ROUTES) == sum(row.count("`") // 2 for row in rows)


def test_numbers_of_reads_are_those_of_the_code() -> None:
    assert f"{READS_AT_ONCE} reads without such a limit are answered at a time, {SHARE} of them of one token" in PAGE
    assert f"up to {MOST_OF_ONE} more of a token wait" in PAGE
    assert f"between the years {FIRST_YEAR} and {LAST_YEAR}" in PAGE


@pytest.mark.holds("admin-api.md#a-payment-webhook-1")
@pytest.mark.slow
async def test_webhook_of_the_page_credits_each_signed_event_once(api, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "webhook.py").write_text(code)
    [port] = free_ports(1)
    secret = os.urandom(24)
    async with api() as a:
        variables = {
            "GATEWAY_SERVER": a.url,
            "GATEWAY_TOKEN": await a.make_token("credits"),
            "WEBHOOK_SECRET": "whsec_" + base64.b64encode(secret).decode(),
            "PORT": str(port),
        }
        command = [sys.executable, str(tmp_path / "webhook.py")]
        process = subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.DEVNULL)
        try:
            async with aiohttp.ClientSession() as session:

                async def send(event: str, amount: str, *, key: bytes = secret, age: int = 0) -> int:
                    body = json.dumps({"account": "acme", "amount": amount, "invoice": event}).encode()
                    moment = str(int(time.time()) - age)
                    signature = hmac.digest(key, f"{event}.{moment}.".encode() + body, "sha256")
                    headers = {"webhook-id": event, "webhook-timestamp": moment}
                    headers["webhook-signature"] = "v1," + base64.b64encode(signature).decode()
                    try:
                        async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=headers) as response:
                            return response.status
                    except aiohttp.ClientConnectionError:
                        return 0

                await until(lambda: send("msg_1", "25"))
                assert await asyncio.gather(*(send("msg_1", "25") for _ in range(3)), send("msg_2", "0.5")) == [204] * 4
                assert await send("msg_3", "1", key=b"another") == 401
                assert await send("msg_3", "1", age=3600) == 401
                assert await send("msg_3", "1e3") == 400
                assert await send("msg_1", "26") == 400
        finally:
            process.kill()
            process.wait()
        account = await a.services.store.accounts.show("acme")
        assert account.json_form()["balance"] == "25.5"

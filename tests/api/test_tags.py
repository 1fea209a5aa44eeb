"""Tags of calls, from the header and from `metadata`, on ledger lines."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client, record_holds
from tests.ledger_lines import last_line

CHAT = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def tagged(gateway: Gateway) -> Gateway:
    """The gateway with names of tags."""
    server = structs.replace(gateway.settings.server, tags=("team", "env", "a", "b", "c"))
    gateway.settings = structs.replace(gateway.settings, server=server)
    return gateway


async def tags_of(client: Client, ledger: Ledger, header: str | None = None, **fields: Any) -> Any:
    """The tags on the line of a call, or the error of its refusal."""
    headers = client.headers if header is None else {**client.headers, "X-Gateway-Tags": header}
    async with client.request("POST", "/v1/chat/completions", json={**CHAT, **fields}, headers=headers) as response:
        answer = await response.json()
        if response.status != 200:
            return response.status, answer["error"]["param"]
        await ledger.drain()
        line = await last_line(ledger, response.headers["openai-organization"], response.headers["x-request-id"])
        assert line is not None
        return line.meta.get("tags")


@pytest.mark.holds("api.md#tags-1")
@pytest.mark.parametrize(
    ("header", "metadata", "expected"),
    [
        (None, None, None),
        ("team=search,env=prod", None, {"team": "search", "env": "prod"}),
        (" team=search , env=eu/1:2+3-x_.y ", None, {"team": "search", "env": "eu/1:2+3-x_.y"}),
        (None, {"team": "ads", "other": "x", "env": "not a tag"}, {"team": "ads"}),
        ("team=search", {"team": "ads", "env": "prod"}, {"team": "search", "env": "prod"}),
        (None, {"team": "x" * 65}, None),
        (None, {"c": "5", "b": "4", "a": "3", "env": "2", "team": "1"}, {"team": "1", "env": "2", "a": "3", "b": "4"}),
        ("", {}, None),
        ("other=x", None, (400, "x-gateway-tags")),
        ("team", None, (400, "x-gateway-tags")),
        ("team=", None, (400, "x-gateway-tags")),
        ("team=a b", None, (400, "x-gateway-tags")),
        ("team=" + "x" * 65, None, (400, "x-gateway-tags")),
        ("team=a,team=b", None, (400, "x-gateway-tags")),
        ("team=1,env=2,a=3,b=4,c=5", None, (400, "x-gateway-tags")),
    ],
)
async def test_configured_tags_are_on_the_line(
    client: Client, tagged: Gateway, header: str | None, metadata: Any, expected: Any
) -> None:
    fields = {} if metadata is None else {"metadata": metadata}
    assert await tags_of(client, tagged.ledger, header, **fields) == expected


@pytest.mark.holds("api.md#tags-1")
async def test_tags_without_configured_names_are_ignored(client: Client, gateway: Gateway) -> None:
    assert await tags_of(client, gateway.ledger, "team=search,=", metadata={"team": "search"}) is None


async def test_reclaimed_and_refunded_calls_keep_their_tags(client: Client, tagged: Gateway) -> None:
    holds = record_holds(tagged)
    await tags_of(client, tagged.ledger, "team=search")
    account, request_id = holds[0].key.account, holds[0].request_id
    given = await tagged.ledger.refund(account, request_id)
    lines = [line async for line in tagged.ledger.lines(account)]
    assert (lines[-1].request_id, lines[-1].meta["tags"]) == (given.operation, {"team": "search"})
    assert lines[-1].json_form()["tags"] == {"team": "search"}

"""The handshake of `GET /v1/realtime`: 101, or an answer of HTTP that says why not."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from msgspec import structs
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client, settled
from tests.api.realtime.conftest import PATH, UPSTREAM_KEY, RealtimeUpstream, talking
from tests.polling import until

TEN = 10 * 10**9
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def refused(client: Client, path: str = PATH, **headers: str) -> tuple[aiohttp.ClientResponse, dict[str, Any]]:
    """A handshake that gets an answer of HTTP."""
    async with client.request("GET", path, headers={**client.headers, **HANDSHAKE, **headers}) as response:
        return response, (await response.json())["error"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/realtime", 400, "missing_required_parameter"),
        ("/v1/realtime?model=", 400, "missing_required_parameter"),
        ("/v1/realtime?model=unknown", 403, "model_not_permitted"),
        ("/v1/realtime?model=secret", 403, "model_not_permitted"),
        ("/v1/realtime?model=chatty", 400, "unsupported_parameter"),
        ("/v1/realtime?model=" + "x" * 3000, 400, "invalid_value"),
    ],
)
async def test_refusal_is_an_answer_of_http(client: Client, path: str, status: int, code: str) -> None:
    response, error = await refused(client, path)
    assert (response.status, error["code"]) == (status, code)
    assert response.headers["x-request-id"]


async def test_wrong_key_is_401(client: Client) -> None:
    response, error = await refused(client, Authorization="Bearer sk-gw-wrong")
    assert (response.status, error["code"]) == (401, "invalid_api_key")


async def test_plain_get_is_426_and_a_post_405(client: Client) -> None:
    async with client.request("GET", PATH) as response:
        assert response.status == 426
    async with client.request("POST", PATH, json={}) as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")


async def test_model_with_hooks_is_refused(client: Client, gateway: Gateway, vendor: RealtimeUpstream) -> None:
    """They would see nothing of the session."""
    gateway.catalog.models["rt"] = structs.replace(gateway.catalog.models["rt"], hooks=("guard",))  # type: ignore[index]
    response, error = await refused(client)
    assert (response.status, error["code"]) == (400, "unsupported_parameter")
    assert not vendor.paths


async def test_empty_balance_is_429(client: Client, accounts: Accounts, gateway: Gateway) -> None:
    await gateway.ledger.credit("acme", -TEN, kind="adj")
    response, error = await refused(client)
    assert (response.status, error["type"]) == (429, "insufficient_quota")


@pytest.mark.parametrize(
    ("theirs", "status", "code"),
    [(401, 502, "upstream_auth_error"), (429, 429, "slow_down"), (500, 502, "upstream_error"), (302, 502, None)],
)
async def test_refusal_of_the_upstream_is_an_answer_of_http_and_free(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, theirs: int, status: int, code: str | None
) -> None:
    vendor.refusal = (theirs, '{"error":{"message":"no","code":"no"}}')
    response, error = await refused(client)
    assert response.status == status
    assert code is None or error["code"] == code
    assert UPSTREAM_KEY not in str(error) and "127.0.0.1" not in str(error)
    assert (await settled(accounts)).balance == TEN


async def test_upstream_that_is_away_is_502_and_free(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts
) -> None:
    await vendor.close()
    response, error = await refused(client)
    assert (response.status, error["code"]) == (502, "upstream_error")
    assert (await settled(accounts)).balance == TEN


async def test_key_may_be_offered_as_a_subprotocol_and_is_in_no_log(
    client: Client, bearer: dict[str, str], capsys: pytest.CaptureFixture[str], vendor: RealtimeUpstream
) -> None:
    key = bearer["Authorization"].removeprefix("Bearer ")
    url = client.base_url.replace("http", "ws", 1) + PATH
    offered = [Subprotocol("realtime"), Subprotocol(f"openai-insecure-api-key.{key}")]
    async with connect(url, subprotocols=offered) as wire:
        assert wire.subprotocol == "realtime"
        await wire.recv()
    wrong = [Subprotocol("realtime"), Subprotocol("openai-insecure-api-key.sk-gw-wrong")]
    async with client.request(
        "GET", PATH, headers={**HANDSHAKE, "Sec-WebSocket-Protocol": ", ".join(wrong)}
    ) as response:
        assert response.status == 401
    await until(lambda: vendor.sockets)
    printed = capsys.readouterr()
    assert key not in printed.out + printed.err and "sk-gw-wrong" not in printed.out + printed.err
    assert key not in str(vendor.headers)


async def test_subprotocol_is_no_key_elsewhere(client: Client, bearer: dict[str, str]) -> None:
    key = bearer["Authorization"].removeprefix("Bearer ")
    headers = {"Sec-WebSocket-Protocol": f"realtime, openai-insecure-api-key.{key}"}
    async with client.request("GET", "/v1/models", headers=headers) as response:
        assert response.status == 401


@pytest.mark.parametrize(
    "path",
    [
        "/realtime?model=rt",
        "/openai/v1/realtime?model=rt",
        "/openai/realtime?deployment=rt",
        "/openai/deployments/rt/realtime",
    ],
)
async def test_paths_of_other_clients_lead_there(client: Client, path: str) -> None:
    async with talking(client, path):
        pass


async def test_sockets_of_an_account_are_limited(client: Client, gateway: Gateway) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(64):
            await stack.enter_async_context(talking(client, "/v1/realtime?model=fake"))
        response, error = await refused(client, "/v1/realtime?model=fake")
        assert (response.status, error["code"]) == (429, "concurrency_limit_exceeded")


async def test_key_of_other_endpoints_is_refused(client: Client, keys: Keys) -> None:
    created = await keys.create("acme", name="chat", endpoints=["chat"])
    client.headers = {"Authorization": f"Bearer {created.text}"}
    response, _ = await refused(client)
    assert response.status == 403


async def test_concurrency_of_a_key_holds_for_open_sessions(client: Client, keys: Keys, accounts: Accounts) -> None:
    created = await keys.create("acme", name="one", concurrency=1)
    client.headers = {"Authorization": f"Bearer {created.text}"}
    async with talking(client, "/v1/realtime?model=fake") as talk:
        for _ in range(3):  # each response is followed by another call of the same session
            assert (await talk.ask())[-1]["type"] == "response.done"
        response, error = await refused(client)
        assert (response.status, error["code"]) == (429, "concurrency_limit_exceeded")
    await settled(accounts)

"""The handshake of `GET /v1/responses`: 101, or an answer of HTTP that says why not."""

from __future__ import annotations

from contextlib import AsyncExitStack

import aiohttp
import pytest
from msgspec import structs

from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.api.sockets.conftest import PATH, answers, opened
from tests.polling import until

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
PATHS = ["/responses", "/v1/responses", "/openai/v1/responses"]
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}


def switch_off(gateway: Gateway) -> None:
    server = gateway.settings.server
    websocket = structs.replace(server.websocket, responses=False)
    gateway.settings = structs.replace(gateway.settings, server=structs.replace(server, websocket=websocket))


@pytest.mark.holds("operations/network.md#websocket-1")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bare", [False, True], ids=["whole", "without-upgrade"])
async def test_switched_off_it_is_426_at_once(client: Client, gateway: Gateway, path: str, bare: bool) -> None:
    """Also behind a proxy that removes the headers of one hop, as nginx does unless it is told otherwise."""
    switch_off(gateway)
    headers = {**client.headers, **HANDSHAKE}
    if bare:
        del headers["Upgrade"], headers["Connection"]
    async with client.request("GET", path, headers=headers) as response:
        assert response.status == 426
        assert response.headers["Connection"] == "close"
        assert response.headers["Upgrade"] == "websocket"
        error = (await response.json())["error"]
    assert (error["code"], error["type"]) == ("upgrade_required", "invalid_request_error")


@pytest.mark.parametrize("path", PATHS)
async def test_switched_on_a_proxy_without_upgrade_gets_426_too(client: Client, path: str) -> None:
    headers = {**client.headers, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY}
    async with client.request("GET", path, headers=headers) as response:
        assert response.status == 426
        assert "'Upgrade: websocket'" in (await response.json())["error"]["message"]


async def test_plain_get_is_405_as_before(client: Client) -> None:
    async with client.request("GET", PATH) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("is_on", [True, False])
async def test_wrong_key_is_401_at_the_handshake(client: Client, gateway: Gateway, is_on: bool) -> None:
    if not is_on:
        switch_off(gateway)
    headers = {**HANDSHAKE, "Authorization": "Bearer sk-gw-wrong"}
    async with client.request("GET", PATH, headers=headers) as response:
        assert response.status == 401
        assert (await response.json())["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("name", ["api-key", "x-api-key"])
async def test_key_may_be_in_the_other_headers(
    client: Client, upstream: FakeUpstream, bearer: dict[str, str], name: str
) -> None:
    answers(upstream)
    client.headers = {name: bearer["Authorization"].removeprefix("Bearer ")}
    async with opened(client, **{"OpenAI-Beta": "responses_websockets=2026-02-06"}) as socket:
        assert (await socket.ask())[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Sec-WebSocket-Version": "8"}, 426),
        ({"Sec-WebSocket-Key": "short"}, 400),
        ({"Connection": "keep-alive"}, 426),
        ({"Upgrade": "h2c, websocket"}, 426),
    ],
)
async def test_incomplete_handshake_is_refused(client: Client, changed: dict[str, str], status: int) -> None:
    async with client.request("GET", PATH, headers={**client.headers, **HANDSHAKE, **changed}) as response:
        assert response.status == status
        if "Sec-WebSocket-Version" in changed:
            assert response.headers["Sec-WebSocket-Version"] == "13"


@pytest.mark.parametrize(("setting", "most"), [("max_per_account", 8), ("max_per_address", 9)])
async def test_sockets_are_bounded_per_account_and_address(
    client: Client, gateway: Gateway, setting: str, most: int
) -> None:
    if setting == "max_per_address":
        server = gateway.settings.server
        websocket = structs.replace(server.websocket, max_per_account=100)
        gateway.settings = structs.replace(gateway.settings, server=structs.replace(server, websocket=websocket))
    async with AsyncExitStack() as stack:
        for _ in range(most):
            await stack.enter_async_context(opened(client))
        assert gateway.metrics._gauges[("gateway_websockets", ())] == most
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await stack.enter_async_context(opened(client))
        assert refused.value.status == 429

    async def fits() -> bool:
        try:
            async with opened(client):
                return True
        except aiohttp.WSServerHandshakeError:
            return False

    assert await until(fits)
    assert await until(lambda: not gateway.metrics._gauges[("gateway_websockets", ())])

"""From where calls came: noted for calls that were served, whatever became of them, as the configuration says."""

from __future__ import annotations

import pytest
from msgspec import structs

from gateway.config.settings import Settings
from gateway.ledger.caller_addresses import STREAM
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing import FakeUpstream, Reply

from .conftest import Client

ME = "127.0.0.0/24"


@pytest.fixture
def kept() -> str:
    return "shortened"


@pytest.fixture
def settings(settings: Settings, kept: str) -> Settings:
    database = structs.replace(settings.database, caller_addresses=kept)
    server = structs.replace(settings.server, trusted_proxies=("127.0.0.1",))
    return structs.replace(settings, database=database, server=server)


def noted(gateway: Gateway) -> dict[str, str]:
    """The addresses that wait, by request id."""
    waiting = gateway.caller_addresses
    assert len(waiting._waiting) == len({one[1] for one in waiting._waiting})
    return {id_: address for _, address, ids in waiting.batch_of(waiting._waiting).uses for id_ in ids}


@pytest.mark.holds("operations/history.md#addresses-of-callers-1")
async def test_served_and_failed_calls_are_noted_once_and_refused_ones_are_not(
    client: Client, gateway: Gateway, upstream: FakeUpstream
) -> None:
    answers = [(await client.chat())[0], (await client.stream())[0]]
    upstream.enqueue(Reply(status=500))
    answers.append((await client.chat())[0])
    assert [answer.status for answer in answers] == [200, 200, 502]
    refused = [(await client.chat(model="secret"))[0], (await client.chat(temperature="hot"))[0]]
    async with client.request("GET", "/v1/models"):
        pass
    assert [answer.status for answer in refused] == [403, 400]
    await gateway.settlement.drain()
    assert noted(gateway) == {answer.headers["x-request-id"]: ME for answer in answers}


@pytest.mark.holds("operations/history.md#addresses-of-callers-1")
async def test_client_behind_a_trusted_proxy_is_noted(client: Client, gateway: Gateway) -> None:
    client.headers = {**client.headers, "X-Forwarded-For": "198.51.100.1, 203.0.113.9"}
    response, _ = await client.chat()
    assert noted(gateway) == {response.headers["x-request-id"]: "203.0.113.0/24"}


@pytest.mark.parametrize("kept", ["whole"])
async def test_whole_address_is_noted_if_the_configuration_asks_for_it(client: Client, gateway: Gateway) -> None:
    response, _ = await client.chat()
    assert noted(gateway) == {response.headers["x-request-id"]: "127.0.0.1"}


@pytest.mark.holds("operations/history.md#addresses-of-callers-1")
@pytest.mark.parametrize("kept", ["off"])
async def test_nothing_is_noted_if_it_is_off(client: Client, gateway: Gateway, store: Store) -> None:
    await client.chat()
    assert noted(gateway) == {}
    await gateway.caller_addresses.sender.stop()
    assert await store.client.exists(STREAM) == 0


async def test_addresses_are_sent_when_the_worker_ends(client: Client, gateway: Gateway, store: Store) -> None:
    await client.chat()
    await gateway.caller_addresses.sender.stop()
    assert await store.client.xlen(STREAM) == 1 and noted(gateway) == {}

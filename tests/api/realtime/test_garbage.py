"""Realtime sessions leave nothing to the garbage collector; `tests/inference/test_garbage.py` says why that matters."""

from __future__ import annotations

import gc

import pytest

from gateway.accounts.keys import Keys
from gateway.api.sockets.realtime_socket import RealtimeSocket
from gateway.errors import Draining
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client
from tests.api.realtime.conftest import RealtimeUpstream, counts, talking
from tests.leftovers import garbage, handlers
from tests.polling import until

pytestmark = [pytest.mark.usefixtures("no_collector"), pytest.mark.slow]

WAYS = ["silent", "close", "abort", "cut", "revoked", "upstream", "refused", "mistake"]


def sessions() -> int:
    return sum(type(thing) is RealtimeSocket for thing in gc.get_objects())


@pytest.mark.parametrize("way", WAYS)
async def test_session_leaves_no_garbage_however_it_ends(
    client: Client, vendor: RealtimeUpstream, gateway: Gateway, keys: Keys, way: str
) -> None:
    created = await keys.create("acme", name="gone")
    client.headers = {"Authorization": f"Bearer {created.text}"}
    if way == "refused":
        vendor.refusal = (500, "no")
        async with client.request(
            "GET",
            "/v1/realtime?model=rt",
            headers={
                **client.headers,
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
        ) as response:
            assert response.status == 502
    else:
        async with talking(client) as talk:
            if way == "mistake":
                await talk.send("nothing")
                await talk.until("error")
            elif way != "silent":
                await vendor.begin()
                await vendor.text("hello")
                await vendor.done(**counts(1, 0, 1, 0))
                await vendor.begin("resp_2")
                await vendor.text("hello", "resp_2")
                await talk.until("response.done")
                await talk.until("response.output_text.delta")
            if way == "abort":
                talk.wire.transport.abort()
            elif way == "cut":
                gateway.active_calls.cut_all(Draining())
                await talk.closed()
            elif way == "revoked":
                await keys.revoke(created.id)
                await talk.closed()
            elif way == "upstream":
                await vendor.sockets[-1].close()
                await talk.closed()
    await until(lambda: handlers() == 0)
    await until(lambda: sessions() == 0)
    assert not garbage()

"""Realtime sessions of real processes: a worker that is killed, and a gateway that stops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.polling import until
from tests.processes.conftest import Serve
from tests.processes.served import MODELS, Served

REALTIME = """
[providers.fake.models.talk]
text = "again and again"
endless = true
interval = 0.01
[models.talk]
provider = "fake"
endpoints = ["realtime"]
price = { input = 1000, output = 1000, audio_input = 1000, audio_output = 1000 }
default_reserve_output = 100
"""
TOKEN = 10**6  # nano units


async def heard(wire: ClientConnection, deltas: int) -> int:
    """Read until so many parts of audio have come; the words."""
    words = audio = 0
    while audio < deltas:
        event = json.loads(await wire.recv())
        words += event["type"].endswith("transcript.delta")
        audio += event["type"].endswith("output_audio.delta")
    return words


def address(gateway: Served) -> str:
    return gateway.base_url.replace("http", "ws", 1) + "/realtime?model=talk"


async def talking(stack: AsyncExitStack, gateway: Served, key: str = "") -> ClientConnection:
    headers = {"Authorization": f"Bearer {key or gateway.api_key}"}
    wire = await stack.enter_async_context(connect(address(gateway), additional_headers=headers, compression=None))
    await wire.send('{"type":"response.create"}')
    return wire


async def closed(wire: ClientConnection) -> int | None:
    try:
        while True:
            await wire.recv()
    except ConnectionClosed:
        return wire.close_code


@pytest.mark.holds("prices.md#realtime-sessions-8", "operations/processes.md#what-happens-when-a-process-ends-1")
async def test_responses_of_a_killed_worker_are_charged_once_for_what_they_delivered(serve: Serve) -> None:
    gateway = await serve(MODELS + REALTIME)
    async with AsyncExitStack() as stack:
        wires = [await talking(stack, gateway) for _ in range(4)]
        silent = await stack.enter_async_context(
            connect(address(gateway), additional_headers={"Authorization": f"Bearer {gateway.api_key}"})
        )
        words = [await heard(wire, 5 * (number + 1)) for number, wire in enumerate(wires)]
        os.kill(gateway.workers[0], signal.SIGKILL)
        for wire in (*wires, silent):
            assert await closed(wire) in (1006, None)

    async def released() -> bool:
        return (await gateway.account()).held == 0

    await until(released)
    charges = [line for line in await gateway.charges() if line.amount]
    assert len(charges) == 4, "the session without a response costs nothing"
    assert {line.meta["outcome"] for line in charges} == {"worker_died"}
    paid = sorted(-line.amount // TOKEN for line in charges)
    for least, amount in zip(sorted(words), paid, strict=True):
        # A word is a token and 200 ms of audio, which our estimate takes for 4.2 tokens.
        assert least * 4 <= amount <= (least + 20) * 6
    await gateway.proved()


async def test_sigterm_ends_sessions_with_1001_and_their_responses_are_charged(serve: Serve) -> None:
    gateway = await serve(MODELS + REALTIME)
    async with AsyncExitStack() as stack:
        wire = await talking(stack, gateway)
        silent = await stack.enter_async_context(
            connect(address(gateway), additional_headers={"Authorization": f"Bearer {gateway.api_key}"})
        )
        await heard(wire, 3)
        stopping = asyncio.ensure_future(_stopped(gateway))
        assert await closed(silent) == 1001
        assert await closed(wire) == 1001
        await stopping


async def _stopped(gateway: Served) -> Any:
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    return await gateway.ended()

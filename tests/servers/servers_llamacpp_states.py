"""A llama.cpp server that is full, loads its model, is killed or starts again, and callers who leave."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from gateway.testing import RunningGateway, running_gateway
from gateway.testing.ports import free_ports
from tests.polling import until

from .asking import ask, charges, command, hi
from .llamacpp import LlamaServer, llama_server, loading_server

LONG = 1900  # tokens, about the window of a slot: the slow server writes them in half a minute or more
CHAT = "/v1/chat/completions"


def config(*addresses: str) -> str:
    """The model `both` over servers at these addresses, and `first` over the first of them alone."""
    names = [f"server{number}" for number in range(len(addresses))]
    parts = [
        f'[providers.{name}]\nplugin = "openai"\npreset = "llamacpp"\nbase_url = "{address}/v1"'
        for name, address in zip(names, addresses, strict=True)
    ]
    targets = ", ".join(f'{{ provider = "{name}", model = "tiny" }}' for name in names)
    price = "price = { input = 1, output = 2 }"
    parts += ["[groups.default]", f'[models.both]\ntargets = [{targets}]\nstrategy = "weighted"\n{price}']
    parts += [f'[models.first]\nprovider = "{names[0]}"\nmodel = "tiny"\n{price}']
    return "\n".join(parts)


@asynccontextmanager
async def long_answer(served: RunningGateway) -> AsyncIterator[None]:
    """A stream of the slow server that has begun, until the caller leaves."""
    body = hi("slow", max_tokens=LONG, stream=True, ignore_eos=True)
    headers = {"Authorization": f"Bearer {served.api_key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{served.base_url}/chat/completions", json=body) as response,
    ):
        assert response.status == 200
        await response.content.readany()
        yield


async def test_slot_is_free_within_a_second_of_the_callers_leaving(served: RunningGateway, slow: LlamaServer) -> None:
    async with long_answer(served), long_answer(served):
        await until(lambda: asyncio.to_thread(lambda: slow.busy == 2))
    left = time.monotonic()
    await until(lambda: asyncio.to_thread(lambda: slow.busy == 0))
    assert time.monotonic() - left < 1.0


async def test_call_waits_until_a_full_server_has_a_slot(served: RunningGateway, slow: LlamaServer) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(long_answer(served))
        waiting = asyncio.create_task(ask(served, CHAT, hi("slow", max_tokens=3)))
        await until(lambda: asyncio.to_thread(lambda: slow.waiting == 1))
        assert not waiting.done()
    assert (await waiting).status == 200


async def test_call_is_answered_by_another_target_while_a_server_loads(one: LlamaServer, tmp_path: Path) -> None:
    with loading_server(tmp_path) as loading, running_gateway(config(loading.url, one.url)) as served:
        answers = [await ask(served, CHAT, hi("both", max_tokens=3)) for _ in range(8)]
        assert [answer.status for answer in answers] == [200] * 8


async def test_server_that_loads_is_told_as_overloaded_with_a_pause(tmp_path: Path) -> None:
    with loading_server(tmp_path) as loading, running_gateway(config(loading.url)) as served:
        answer = await ask(served, CHAT, hi("first"))
        assert (answer.status, answer.json["error"]["code"]) == (503, "server_is_overloaded")
        assert answer.headers["Retry-After"]


async def test_server_that_starts_again_is_called_again(model_file: Path) -> None:
    [port] = free_ports(1)
    with running_gateway(config(f"http://127.0.0.1:{port}")) as served:
        with llama_server(model_file, port=port):
            before = await ask(served, CHAT, hi("first"))
        assert (await ask(served, CHAT, hi("first"))).status in (502, 503)
        with llama_server(model_file, port=port):

            async def answered() -> str:
                after = await ask(served, CHAT, hi("first"))
                return after.json["choices"][0]["message"]["content"] if after.status == 200 else ""

            assert await until(answered) == before.json["choices"][0]["message"]["content"]


async def test_calls_over_two_servers_are_all_answered_when_one_is_killed(one: LlamaServer, model_file: Path) -> None:
    """400 calls; each has one charge, and the audit is clean."""
    with llama_server(model_file) as dying, running_gateway(config(one.url, dying.url)) as served:
        statuses: Counter[int] = Counter()

        async def caller(number: int) -> None:
            for _ in range(25):
                statuses[(await ask(served, CHAT, hi("both", max_tokens=20))).status] += 1
                if number == 0 and sum(statuses.values()) > 200 and dying.process.poll() is None:
                    await asyncio.to_thread(dying.kill)

        await asyncio.gather(*map(caller, range(16)))
        assert statuses == {200: 400}
        assert dying.process.poll() is not None
        lines = await until(lambda: found if len(found := charges(served)) >= 400 else None)
        assert len({line["request_id"] for line in lines}) == len(lines) == 400
        command(served, "audit")

"""A stream whose llama.cpp server is killed in the middle of its text is finished by a second one, word for word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gateway.testing import RunningGateway, running_gateway
from tests.polling import until

from .asking import charges, command, hi
from .llamacpp import LlamaServer, llama_server

BEFORE = 60  # characters before the kill
TOKENS = 300  # of the whole answer, a character each; the server writes them in some seconds
ASKED = hi("both", max_tokens=TOKENS, ignore_eos=True)

CONFIG = """
[providers.dying]
plugin = "openai"
preset = "llamacpp"
base_url = "{dying}/v1"

[providers.other]
plugin = "openai"
preset = "llamacpp"
base_url = "{other}/v1"

[groups.default]

[models.both]
targets = [{{ provider = "dying", model = "slow" }}, {{ provider = "other", model = "slow" }}]
strategy = "in_order"
prefill = "{prefill}"
price = {{ input = 1, output = 2 }}
"""


def whole_text(server: LlamaServer) -> str:
    """What the server itself answers."""
    answer = server.ask("/v1/chat/completions", {**ASKED, "model": server.model})
    return str(answer["choices"][0]["message"]["content"])


async def chunks_of(served: RunningGateway, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The chunks of a stream up to its [DONE], which must come."""
    headers = {"Authorization": f"Bearer {served.api_key}"}
    url = f"{served.base_url}/chat/completions"
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as response:
        assert response.status == 200
        async for line in response.content:
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                return
            if data.startswith(b"{"):
                yield json.loads(data)
    raise AssertionError("the stream was cut")


@contextmanager
def two_servers(slow: LlamaServer, prefill: str) -> Iterator[tuple[RunningGateway, LlamaServer]]:
    """The gateway before a server that may be killed, and `slow`."""
    with (
        llama_server(Path(slow.model), context=4096, slots=2) as dying,
        running_gateway(CONFIG.format(dying=dying.url, other=slow.url, prefill=prefill)) as served,
    ):
        yield served, dying


async def streamed(served: RunningGateway, dying: LlamaServer) -> tuple[str, list[str]]:
    """The text of a stream whose server is killed after `BEFORE` characters, and its finish reasons."""
    text, finishes = "", []
    async for chunk in chunks_of(served, {**ASKED, "stream": True}):
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
            finishes += [choice["finish_reason"]] if choice["finish_reason"] else []
        if len(text) >= BEFORE and dying.process.poll() is None:
            assert not finishes, "it was killed too late"
            await asyncio.to_thread(dying.kill)
    return text, finishes


async def charged(served: RunningGateway) -> dict[str, Any]:
    """The one ledger line, in a ledger without a fault."""
    [line] = await until(lambda: charges(served))
    command(served, "audit")
    return line


async def test_text_of_a_killed_server_is_finished_word_for_word(slow: LlamaServer) -> None:
    with two_servers(slow, "auto") as (served, dying):
        assert await streamed(served, dying) == (whole_text(slow), ["length"])
        line = await charged(served)
        assert line["joined"]["form"] == "restart"
        assert BEFORE <= line["joined"]["offset"] < TOKENS


async def test_text_of_a_killed_server_is_finished_by_one_that_goes_on(slow: LlamaServer) -> None:
    """It reads a begun text in one step, so its numbers are others, and after some words its text may be, too."""
    with two_servers(slow, "assistant") as (served, dying):
        text, finishes = await streamed(served, dying)
        line, whole = await charged(served), whole_text(slow)
        offset = line["joined"]["offset"]
        assert (text[: offset + 1], finishes) == (whole[: offset + 1], ["length"])
        assert line["joined"]["form"] == "prefill" or text == whole

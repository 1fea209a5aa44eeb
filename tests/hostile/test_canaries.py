"""Secrets with names, everywhere a secret can be; after every way a call can go, none of them is anywhere else.

The gateway is a process of its own with a provider plugin from an entry point, so that what is searched is what an
operator would have: its log, its metrics, its store, its error bodies, and what its commands print.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count, product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tornado.ioloop import IOLoop
from yarl import URL

from gateway.config.loader import load
from gateway.store import EmbeddedServer, Store
from gateway.testing import FakeUpstream, Reply
from gateway.testing.running import RunningGateway, running_gateway
from tests.polling import ENDS_WITHIN

pytestmark = pytest.mark.slow

UPSTREAM_KEY = "canary-upstream-key-5d0e"  # in no shape that a pattern would know
PEPPER = "canary-pepper-of-the-store-9a1b"
PEPPERS = '[store]\npepper = "env:CANARY_PEPPER"\nprevious_pepper = "file:data/pepper"\n'
MESSAGE = "canary-message-71c2"
FIELD = "canary-field-0b9f"
CLIENT_ID = "Bearer canary-client-id-sk-33aa"
UPSTREAM_SAYS = "canary-upstream-says-c4d4"
UPSTREAM_HEADER = "canary-upstream-header-e5e5"
PLUGIN_SAYS = "canary-plugin-says-f6f6"
QUERY_KEY = "sk-canary-in-the-query-a7a7"
PATH_KEY = "sk-canary-in-the-path-b8b8"
WRONG_KEY = "sk-canary-of-nobody-d9d9"
NOWHERE = [UPSTREAM_KEY, PEPPER, MESSAGE, FIELD, UPSTREAM_SAYS, UPSTREAM_HEADER, PLUGIN_SAYS, QUERY_KEY, PATH_KEY]
NOWHERE += [WRONG_KEY]

CONFIG = """
[providers.up]
plugin = "openai"
base_url = "{base_url}"
api_key = "env:CANARY_UPSTREAM_KEY"

[providers.loose]
plugin = "loose"
api_key = "env:CANARY_UPSTREAM_KEY"

[providers.broken]
plugin = "broken"
api_key = "env:CANARY_UPSTREAM_KEY"

[models."m1"]
provider = "up"
retries = 0
price = {{ input = 1, output = 2 }}
{scripted}
[models."loose"]
provider = "loose"
price = {{ input = 1, output = 2 }}

[models."broken"]
provider = "broken"
price = {{ input = 1, output = 2 }}
"""

# A provider and a model per scripted failure: one that has failed is left alone, and would hide the next.
ONE = """
[providers.up{number}]
plugin = "openai"
base_url = "{base_url}"
api_key = "env:CANARY_UPSTREAM_KEY"

[models."m1-{number}"]
provider = "up{number}"
retries = 0
price = {{ input = 1, output = 2 }}
"""

PLUGIN = f"""
from gateway import Chat, ChatChunk, Provider, Secret, hookimpl
from msgspec import Struct

SAYS = "{PLUGIN_SAYS[:9]}" + "{PLUGIN_SAYS[9:]}"  # a traceback shows lines of code, which are no secret

class Loose(Provider, Chat):
    name = "loose"
    class Options(Struct, frozen=True):
        api_key: Secret
    async def stream_chat(self, request, target):
        if request.max_output == 1:
            yield ChatChunk.text("half")
        raise ValueError(SAYS + self.options.api_key.reveal() + request.messages[-1].content)
        yield

class Broken(Loose):
    name = "broken"
    def __init__(self, options, upstream):
        raise ValueError("cannot use " + options.api_key.reveal())

@hookimpl
def register_providers(register):
    register(Loose)
    register(Broken)

@hookimpl
def call_settled(record):
    raise RuntimeError(SAYS)
"""


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    server = FakeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def served(upstream: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningGateway]:
    """A gateway process with all the secrets, and a plugin that cannot keep any."""
    (tmp_path / "gateway_loose.py").write_text(PLUGIN)
    dist = tmp_path / "gateway_loose-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: gateway-loose\nVersion: 1.0\n")
    (dist / "entry_points.txt").write_text("[gateway]\nloose = gateway_loose\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("CANARY_UPSTREAM_KEY", UPSTREAM_KEY)
    monkeypatch.setenv("CANARY_PEPPER", PEPPER)
    numbers = range(2 * len(DIALECTS) * len(list(scripted())))
    ones = "".join(ONE.format(number=number, base_url=upstream.base_url) for number in numbers)
    with running_gateway(CONFIG.format(base_url=upstream.base_url, scripted=ones)) as gateway:
        gateway.stop()
        text = gateway.config.read_text().replace("[store]\n", PEPPERS)
        gateway.config.write_text(text)
        gateway.start()
        created = command(gateway, "keys", "create", "test", "--json").stdout
        gateway.api_key = json.loads(created)["key"]
        yield gateway


def command(gateway: RunningGateway, *words: str) -> subprocess.CompletedProcess[str]:
    """One command of the console; both of what it says."""
    arguments = [sys.executable, "-m", "gateway", *words, "--config", str(gateway.config)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=ENDS_WITHIN)


@asynccontextmanager
async def asked(
    gateway: RunningGateway, path: str, headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[str]:
    """The status line, headers and body of one answer, as text."""
    sent = {"X-Client-Request-Id": CLIENT_ID}
    sent |= {} if gateway.api_key in path else {"Authorization": f"Bearer {gateway.api_key}"}
    sent |= headers or {}
    url = URL(gateway.base_url.removesuffix("/v1") + path, encoded=True)
    async with aiohttp.ClientSession() as session, session.post(url, headers=sent, **options) as answer:
        try:
            body = await answer.text()
        except aiohttp.ClientError as error:
            body = repr(error)
        names = {name: value for name, value in answer.headers.items() if name != "X-Client-Request-Id"}
        yield f"{answer.status} {names} {body}"


def scripted() -> Iterator[Reply]:
    """Ways of an upstream to tell what it should not."""
    says = f"{UPSTREAM_SAYS} Incorrect API key provided: {UPSTREAM_KEY} for {MESSAGE}"
    headers = {"x-odd": UPSTREAM_HEADER, "set-cookie": UPSTREAM_HEADER, "x-request-id": f"{UPSTREAM_HEADER} odd"}
    for status in (401, 403, 404, 429, 500, 503, 302):
        yield Reply.error(status, says, headers=headers)
    yield Reply(body=says.encode(), headers=headers)
    yield Reply.stream([{"error": {"message": says, "code": 500}}])
    yield Reply(raw=says.encode())


Request = tuple[str, dict[str, Any]]  # path and body


def chat(gateway: RunningGateway, model: str, *, stream: bool, limit: int = 64) -> Request:
    """With a key in the query that is none of the gateway's."""
    messages = [{"role": "user", "content": MESSAGE}]
    body = {"model": model, "messages": messages, "user": FIELD, "max_tokens": limit, "stream": stream}
    return f"/v1/chat/completions?key={QUERY_KEY}", body


def completions(gateway: RunningGateway, model: str, *, stream: bool, limit: int = 64) -> Request:
    return "/v1/completions", {
        "model": model, "prompt": MESSAGE, "user": FIELD, "max_tokens": limit, "stream": stream,
    }  # fmt: skip


def responses(gateway: RunningGateway, model: str, *, stream: bool, limit: int = 64) -> Request:
    named = {"user": FIELD, "metadata": {"field": FIELD}}
    return "/v1/responses", {"model": model, "input": MESSAGE, "max_output_tokens": limit, "stream": stream, **named}


def messages(gateway: RunningGateway, model: str, *, stream: bool, limit: int = 64) -> Request:
    _, body = chat(gateway, model, stream=stream, limit=limit)
    del body["user"]
    return "/v1/messages?beta=true", {**body, "metadata": {"user_id": FIELD}}


def gemini(gateway: RunningGateway, model: str, *, stream: bool, limit: int = 64) -> Request:
    """With the caller's own key in the query."""
    path = f"/v1beta/models/{model}:{'streamGenerateContent?alt=sse&' if stream else 'generateContent?'}"
    contents = [{"role": "user", "parts": [{"text": MESSAGE}]}]
    body = {"contents": contents, "generationConfig": {"maxOutputTokens": limit}, "labels": {"field": FIELD}}
    return f"{path}key={gateway.api_key}", body


DIALECTS = (chat, completions, responses, messages, gemini)


async def dump(gateway: RunningGateway) -> str:
    """Everything in the store, values in their serialised form."""
    async with EmbeddedServer.attach_or_start(load(gateway.config).data_dir) as address:
        store = await Store.open(address, timeout=20.0)
        try:
            names = [name async for name in store.client.scan_iter()]
            return repr([(name, await store.client.dump(name)) for name in names])
        finally:
            await store.close()


async def test_planted_secrets_are_found_in_no_output(served: RunningGateway, upstream: FakeUpstream) -> None:
    told: list[str] = []
    numbers = count()
    for write, stream in product(DIALECTS, (False, True)):
        for reply in scripted():
            upstream.enqueue(reply)
            before = len(upstream.seen)
            path, body = write(served, f"m1-{next(numbers)}", stream=stream)
            async with asked(served, path, json=body) as answer:
                told.append(answer)
            assert len(upstream.seen) == before + 1, answer
        for model, limit in (("loose", 1), ("loose", 2), ("broken", 1), ("none", 1)):
            path, body = write(served, model, stream=stream, limit=limit)
            async with asked(served, path, json=body) as answer:
                told.append(answer)
        path, body = write(served, "m1", stream=stream)
        async with asked(served, path, json=body) as answer:
            assert answer.startswith("200")  # it repeats the message, as it should
            assert UPSTREAM_KEY not in answer
    path, body = chat(served, "m1", stream=False)
    async with asked(served, f"/v1/models/{PATH_KEY}?api_key={QUERY_KEY}") as answer:
        told.append(answer)
    async with asked(served, f"/v1/{PATH_KEY}") as answer:
        told.append(answer)
    for headers in (
        {"Authorization": f"Bearer {WRONG_KEY}"},
        {"Authorization": WRONG_KEY},
        {"Authorization": "Bearer", "api-key": WRONG_KEY},
    ):
        async with asked(served, path, json=body, headers=headers) as answer:
            told.append(answer)
    for text in (b'{"model": "' + FIELD.encode(), b'{"messages": "' + MESSAGE.encode() + b'"}'):
        async with asked(served, path, data=text, headers={"Content-Type": "application/json"}) as answer:
            assert answer.startswith("400")
            told.append(answer)

    metrics = urllib.request.urlopen(f"{served.side_url}/metrics", timeout=5).read().decode()
    stored = await dump(served)
    printed = [command(served, *words) for words in (["plugins", "--json"], ["models", "--json"], ["check", "--json"])]
    assert all(done.stdout for done in printed)
    served.stop()
    log = served.log.read_text()
    assert "provider broken is out of service" in log
    assert "provider loose raised ValueError" in log
    assert "in stream_chat" in log, "an operator still learns where it happened"

    places = {"answers": "\n".join(told), "metrics": metrics, "store": stored, "log": log}
    places |= {f"command {at}": done.stdout + done.stderr for at, done in enumerate(printed)}
    settings = load(served.config)
    places["repr"] = f"{settings!r} {settings}"
    found = [
        (canary, place) for canary in [*NOWHERE, served.api_key] for place, text in places.items() if canary in text
    ]
    assert not found, [(canary, place, around(places[place], canary)) for canary, place in found]
    assert "canary-client-id" not in log


def around(text: str, canary: str) -> str:
    at = text.index(canary)
    return text[max(0, at - 300) : at + 100]

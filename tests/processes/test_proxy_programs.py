"""What docs/operations/proxies.md promises of nginx, HAProxy, Caddy and Traefik with the files of conf/proxies."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from msgspec import structs

from gateway.testing import FakeUpstream, Reply
from tests.api.endpoints.test_chat_stream import HELLO
from tests.console.client import Browser
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.proxy_programs import CALLER, PROGRAMS, Front, Program, proxied
from tests.processes.rolling import load, roll

MIB = 1 << 20
SIZE = 100 * MIB
MAX_BODY = SIZE + MIB
CHAT = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}
MODELS = """
[server.websocket]
responses = true

[server.limits]
max_audio_body = {size}

[providers.up]
plugin = "openai"
base_url = "{base_url}"

[models.m1]
provider = "up"
retries = 0
price = {{ input = 1, output = 2 }}

[models.scribe]
provider = "up"
endpoints = ["transcription"]
price = {{ per_second_in = 0.0001 }}
"""
PASSWORD = "correct horse battery"
THINKS = 0.25  # seconds before an answer, as a provider does. Traefik cuts 1 of 4,000 streams that begin at once

pytestmark = pytest.mark.slow
programs = pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            one,
            id=one.name,
            marks=pytest.mark.skipif(one.binary is None, reason=f"{one.name} is not installed"),
        )
        for one in PROGRAMS
    ],
)


@pytest.mark.no_standard  # a stream that is silent, and then cut
@programs
async def test_calls_pass_at_once_whole_and_with_the_address_of_the_caller(
    yard: Yard, store_url: str, program: Program
) -> None:
    async with (
        FakeUpstream() as upstream,
        proxied(yard, program, store_url, MODELS.format(size=MAX_BODY, base_url=upstream.base_url)) as front,
        front.client() as session,
    ):
        await first_event_passes_while_the_upstream_is_silent(front, session, upstream)
        await websocket_answers(front, session, upstream)
        await upload_arrives_whole(front, session, upstream)
        await address_is_that_of_the_caller(front, session)


async def first_event_passes_while_the_upstream_is_silent(
    front: Front, session: aiohttp.ClientSession, upstream: FakeUpstream
) -> None:
    begun = Reply.stream(HELLO[:2], done=False)
    begun.end = "silence"
    upstream.enqueue(begun)
    body = {**CHAT, "stream": True}
    async with session.post(f"{front.api}/v1/chat/completions", json=body, headers=front.headers) as answer:
        assert answer.status == 200
        line = b""
        while b'"content":"' not in line or b'"content":""' in line:
            line = await answer.content.readline()
            assert line, "the stream has ended"
        upstream.drop()
        with pytest.raises(aiohttp.ClientPayloadError):  # the cut is passed on, too
            await answer.read()


async def websocket_answers(front: Front, session: aiohttp.ClientSession, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO))
    async with session.ws_connect(f"{front.api}/v1/responses", headers=front.headers) as wire:
        await wire.send_str(json.dumps({"type": "response.create", "model": "m1", "input": "Hi"}))
        kinds = [(await wire.receive_json(timeout=60))["type"]]
        while kinds[-1] not in ("response.completed", "error"):
            kinds.append((await wire.receive_json(timeout=60))["type"])
    assert kinds[-1] == "response.completed"


async def upload_arrives_whole(front: Front, session: aiohttp.ClientSession, upstream: FakeUpstream) -> None:
    async def audio() -> AsyncIterator[bytes]:
        for _ in range(SIZE // MIB):
            yield bytes(MIB)

    before = len(upstream.seen)
    upstream.enqueue(Reply.json({"text": "a silence", "usage": {"type": "duration", "seconds": 3}}))
    form = aiohttp.FormData({"model": "scribe"})
    form.add_field("file", audio(), filename="a.mp3", content_type="audio/mpeg")
    async with session.post(f"{front.api}/v1/audio/transcriptions", data=form, headers=front.headers) as answer:
        assert answer.status == 200, await answer.text()
    assert len(upstream.seen[before].body) > SIZE


async def address_is_that_of_the_caller(front: Front, session: aiohttp.ClientSession) -> None:
    headers = {"Authorization": "Bearer sk-unknown", "X-Forwarded-For": "203.0.113.7"}  # a caller may send anything
    async with session.get(f"{front.api}/v1/models", headers=headers) as answer:
        assert answer.status == 401
        request_id = answer.headers["x-request-id"]

    def clients() -> list[str]:
        lines = [line for one in front.gateways for line in one.text.splitlines() if request_id in line]
        return [json.loads(line)["client"] for line in lines]

    assert await until(clients) == [CALLER]


@pytest.mark.parametrize("root_path", ["", "/console"])
@programs
async def test_person_signs_in_to_the_console_on_its_own_host_or_under_a_path(
    yard: Yard, store_url: str, postgres_database: Callable[[], str], program: Program, root_path: str
) -> None:
    models = MODELS.format(size=MAX_BODY, base_url="http://127.0.0.1:9/v1")
    models += f'\n[database]\nurl = "{postgres_database()}"\n'
    async with (
        proxied(yard, program, store_url, models, root_path=root_path) as front,
        front.client() as session,
    ):
        created = await front.gateways[0].command("users", "create", "ann@example.com", "--operator")
        address = front.api if root_path else front.console
        assert created["link"].startswith(f"{address}{root_path}/")
        browser = Browser(session, address, root_path)
        token = created["link"].rpartition("=")[2]
        form = {"token": token, "action": "password", "password": PASSWORD, "repeated": PASSWORD}
        await browser.post("/sign-in/link", page=f"/sign-in/link?token={token}", **form)
        profile = await browser.get("/profile")
        assert "ann@example.com" in profile.text
        [style] = set(re.findall(r'<link rel="stylesheet" href="([^"]+)"', profile.html))
        async with session.get(f"{address}{style}") as answer:
            assert (answer.status, answer.content_type) == (200, "text/css")


@pytest.mark.no_standard
@programs
async def test_no_call_fails_while_the_gateways_are_restarted_one_after_the_other(
    yard: Yard, store_url: str, program: Program
) -> None:
    async with (
        FakeUpstream() as upstream,
        proxied(
            yard, program, store_url, MODELS.format(size=MAX_BODY, base_url=upstream.base_url), shutdown_delay="4.0"
        ) as front,
        load(front.api, front.gateways[0].api_key, model="m1", connector=front.connector) as answers,
    ):
        upstream.tamper = lambda reply: structs.replace(reply, delay=THINKS)
        await roll(front.gateways, pause=3.0)
    assert answers.statuses.total() > 100
    assert answers.failed == 0, answers.statuses

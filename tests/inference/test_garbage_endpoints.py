"""Failures of every endpoint leave nothing to the garbage collector; `test_garbage` says why that matters."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.errors import Draining
from gateway.log import gateway_log
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.image_edit_cases import PIXEL
from gateway.testing.openai_dialect import openai_dialect
from gateway.testing.reply import Seen
from gateway.uploads.spool import Spool
from tests.api.conftest import Client
from tests.api.endpoints.test_transcriptions import encode, wav
from tests.leftovers import garbage, handlers
from tests.polling import until

pytestmark = [pytest.mark.usefixtures("no_collector"), pytest.mark.slow]

Fail = Callable[[Reply], Reply]


def cut(reply: Reply) -> Reply:
    """Half of a document; the first frames of a stream."""
    if reply.frames is None:
        return structs.replace(reply, cut_after=len(reply.body) // 2)
    return structs.replace(reply, frames=reply.frames[:3], end="cut", interval=0.005)


def stuck(reply: Reply) -> Reply:
    """The first bytes, then silence."""
    frames = [reply.body[:5]] if reply.frames is None else reply.frames[:3]
    return structs.replace(reply, frames=frames, end="silence")


def not_json(reply: Reply) -> Reply:
    return structs.replace(reply, body=b"{", frames=None if reply.frames is None else [b"data: {\n\n"])


FAILURES: dict[str, Fail] = {
    "500": lambda _: Reply.error(500, "no"),
    "503": lambda _: Reply.error(503, "no"),
    "429": lambda _: Reply.error(429, "no"),
    "an error's body cut": lambda _: structs.replace(Reply.error(500, "no"), cut_after=5),
    "hung up": lambda _: Reply.hang_up(),
    "no HTTP": lambda _: Reply(raw=b"what?\r\n\r\n"),
    "cut": cut,
    "no JSON": not_json,
    "another answer": lambda _: Reply.json({"choices": 7}),
    "empty": lambda reply: structs.replace(reply, body=b"", frames=None if reply.frames is None else []),
    "400": lambda _: Reply.error(400, "no"),
    "401": lambda _: Reply.error(401, "no"),  # last: nobody asks with this credential again
}


class Ask:
    """One kind of request."""

    def __init__(self, path: str, *, seconds: float = 0.0, image: bytes = b"", **fields: Any) -> None:
        self.path = path
        self.image = image  # in a form
        self.seconds = seconds  # of sound, in a form
        self.fields = fields

    async def send(self, client: Client, model: str, *, headers: dict[str, str] | None = None, **fields: Any) -> int:
        """Send it and read whatever comes of it; the status."""
        options: dict[str, Any] = {"json": {"model": model, **self.fields, **fields}}
        headers = {**client.headers, **(headers or {})}
        if self.seconds:
            headers["Content-Type"] = "multipart/form-data; boundary=edge"
            texts = [("model", model), *self.fields.items(), *fields.items()]
            options = {"data": encode(*texts, file=wav(self.seconds))}
        if self.image:
            headers["Content-Type"] = "multipart/form-data; boundary=edge"
            texts = [("model", model), *self.fields.items(), *fields.items()]
            options = {"data": encode(*texts, file=self.image, name="image")}
        async with client.request("POST", f"/v1/{self.path}", headers=headers, **options) as response:
            with contextlib.suppress(aiohttp.ClientError):
                await response.read()
            return response.status


MESSAGES = [{"role": "user", "content": "one two three four five six"}]
ASKS = {
    "chat": Ask("chat/completions", messages=MESSAGES),
    "chat, streamed": Ask("chat/completions", messages=MESSAGES, stream=True),
    "completions": Ask("completions", prompt="one two three"),
    "completions, streamed": Ask("completions", prompt="one two three", stream=True),
    "embeddings": Ask("embeddings", input="some words"),
    "images": Ask("images/generations", prompt="a heron"),
    "images, streamed": Ask("images/generations", prompt="a heron", stream=True, partial_images=2),
    "edits": Ask("images/edits", image=PIXEL, prompt="a heron"),
    "edits, streamed": Ask("images/edits", image=PIXEL, prompt="a heron", stream="true", partial_images="2"),
    "edits of a file on the disk": Ask("images/edits", image=PIXEL + bytes(600_000), prompt="a heron"),
    "moderation": Ask("moderations", input="some words"),
    "rerank": Ask("rerank", query="some words", documents=["words", "none"]),
    "speech": Ask("audio/speech", voice="alloy", input="Read this."),
    "speech, as events": Ask("audio/speech", voice="alloy", input="Read this.", stream_format="sse"),
    "transcription": Ask("audio/transcriptions", seconds=2.0),
    "transcription, streamed": Ask("audio/transcriptions", seconds=2.0, stream="true"),
    "translation": Ask("audio/translations", seconds=2.0),
    "transcription of a file on the disk": Ask("audio/transcriptions", seconds=20.0),
}
EACH = pytest.mark.parametrize("name", ASKS)
SOME = pytest.mark.parametrize("name", ["chat", "chat, streamed", "transcription of a file on the disk"])


@pytest.fixture
def no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is logged: pytest keeps each record, and with it the traceback, to the end of a test."""
    monkeypatch.setattr(gateway_log, "error", lambda *args, **kwargs: None)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models that serve every endpoint: with one target or two, and for each failure places of their own.

    A place that failed several times would be left alone.
    """
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    up["completions"] = True
    nobody = {**up, "base_url": "http://127.0.0.1:1/v1"}
    endpoints = ["chat", "embeddings", "images", "moderation", "rerank", "speech", "transcription"]
    shared = {
        "price": {"input": 1, "output": 2, "per_second_in": "0.000001", "per_request": "0.000001"},
        "endpoints": endpoints,
    }
    alone = {"provider": "up", "retries": 0, **shared}
    pair: dict[str, Any] = {
        "targets": [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}],
        "strategy": "in_order",
        **shared,
    }
    failing: dict[str, Any] = {}
    for kind in FAILURES:
        failing[f"alone: {kind}"] = {**alone, "model": kind}
        targets = [{"provider": "up", "model": f"first {kind}"}, {"provider": "other", "model": f"second {kind}"}]
        failing[f"pair: {kind}"] = {**pair, "targets": targets}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": up, "other": up, "nobody": nobody, "fake": {"plugin": "fake", "models": {}}},
            "models": {
                "alone": alone,
                "pair": pair,
                "retried": {**alone, "retries": 2},
                "impatient": {**alone, "first_byte_timeout": 0.1, "idle_timeout": 0.1},
                "late": {**pair, "total_timeout": 0.2},
                "raced": {**pair, "hedge_after": 0.02},
                "continued": {**pair, "continue_cut": True},
                "unreachable": {**pair, "targets": [{"provider": "nobody", "model": "m"}, pair["targets"][1]]},
                "plain": {**alone, "unsupported_params": ["stream_format"]},
                "dear": {
                    **alone,
                    "price": {"input": 0, "output": 100_000},
                    "endpoints": ["chat"],
                    "default_reserve_output": 1,
                },
                **failing,
            },
        },
        demo=True,
    )


def script(upstream: FakeUpstream, *fails: Fail | None) -> None:
    """Have the next requests fail so, each with one of them; None is a right answer, and so are those after them."""
    upstream.seen.clear()
    left = list(fails)

    def answer(seen: Seen) -> Reply:
        reply = openai_dialect(seen)
        fail = left.pop(0) if left else None
        return reply if fail is None else fail(reply)

    upstream.answer = answer


def slowly(fail: Fail, delay: float) -> Fail:
    return lambda reply: structs.replace(fail(reply), delay=delay)


def right(reply: Reply) -> Reply:
    return reply


def silent(_: Reply) -> Reply:
    return Reply.silence()


def refused(_: Reply) -> Reply:
    return Reply.error(503, "no")


async def meanwhile_another(client: Client) -> None:
    """Have another request answered; what had reached the gateway before it has been dealt with then."""
    async with client.request("GET", "/v1/models") as response:
        assert response.status == 200
        await response.read()


async def assert_nothing_left() -> None:
    await until(lambda: handlers() == 0)
    assert not garbage()


# The upstream fails --------------------------------------------------------------------------------------------------


@EACH
async def test_failures_of_any_kind_leave_no_garbage(client: Client, upstream: FakeUpstream, name: str) -> None:
    for kind, fail in FAILURES.items():
        script(upstream, fail)
        await ASKS[name].send(client, f"alone: {kind}")
        assert len(upstream.seen) == 1, kind
    await assert_nothing_left()


@EACH
async def test_failover_to_another_target_leaves_no_garbage(client: Client, upstream: FakeUpstream, name: str) -> None:
    tried = 0
    for kind, fail in FAILURES.items():
        script(upstream, fail)
        status = await ASKS[name].send(client, f"pair: {kind}")
        tried += status == 200 and len(upstream.seen) == 2
    assert tried >= 6
    await assert_nothing_left()


@SOME
async def test_failures_of_every_target_leave_no_garbage(client: Client, upstream: FakeUpstream, name: str) -> None:
    script(upstream, refused, FAILURES["500"], refused)
    assert await ASKS[name].send(client, "pair") >= 500
    assert len(upstream.seen) == 3
    await assert_nothing_left()


@SOME
async def test_retry_on_the_same_target_leaves_no_garbage(client: Client, upstream: FakeUpstream, name: str) -> None:
    script(upstream, refused)
    assert await ASKS[name].send(client, "retried") == 200
    await assert_nothing_left()


@SOME
async def test_unreachable_target_leaves_no_garbage(client: Client, name: str) -> None:
    assert await ASKS[name].send(client, "unreachable") == 200
    await assert_nothing_left()


async def test_continuation_and_failed_continuation_leave_no_garbage(client: Client, upstream: FakeUpstream) -> None:
    ask = ASKS["chat, streamed"]
    for others in (right, refused):
        script(upstream, cut, others, others)
        assert await ask.send(client, "continued") == 200
        assert len(upstream.seen) >= 2
    await assert_nothing_left()


@EACH
async def test_timeouts_before_and_inside_an_answer_leave_no_garbage(
    client: Client, upstream: FakeUpstream, name: str
) -> None:
    for fail in (silent, stuck):
        script(upstream, fail)
        await ASKS[name].send(client, "impatient")
    await assert_nothing_left()


@SOME
async def test_second_attempt_that_exceeds_the_total_timeout_leaves_no_garbage(
    client: Client, upstream: FakeUpstream, name: str
) -> None:
    script(upstream, refused, silent)
    assert await ASKS[name].send(client, "late") == 504
    await assert_nothing_left()


RACES: dict[str, tuple[Fail, ...]] = {
    "the second wins": (silent, right),
    "the first wins": (slowly(right, 0.04), silent),
    "the first fails at once, the second later": (slowly(refused, 0.04), slowly(refused, 0.04)),
    "all fail": (slowly(refused, 0.04), refused, refused),
    "the first fails before the race": (refused, right),
}


@pytest.mark.parametrize("race", RACES)
async def test_hedged_call_leaves_no_garbage(client: Client, upstream: FakeUpstream, race: str) -> None:
    script(upstream, *RACES[race])
    await ASKS["chat, streamed"].send(client, "raced")
    await assert_nothing_left()


@SOME
async def test_provider_that_raises_leaves_no_garbage(
    client: Client, gateway: Gateway, no_records: None, name: str
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    for provider in gateway.providers["up"].values():
        for verb in ("chat", "transcribe"):
            setattr(provider, verb, fail)
        provider.stream_chat = lambda *_: iter(())  # type: ignore[attr-defined]  # no stream at all
    assert await ASKS[name].send(client, "alone") == 502
    assert await ASKS[name].send(client, "pair") == 200
    await assert_nothing_left()


# The call is ended ---------------------------------------------------------------------------------------------------


@EACH
async def test_client_that_disconnects_leaves_no_garbage(client: Client, upstream: FakeUpstream, name: str) -> None:
    for fails in ([silent], [stuck], [refused, silent]):
        script(upstream, *fails)
        reading = asyncio.create_task(ASKS[name].send(client, "pair"))
        await upstream.wait_started(len(fails) - 1, frames=int(fails == [stuck]))
        await meanwhile_another(client)
        reading.cancel()
        assert (await upstream.wait_ended(len(fails) - 1)).outcome == "left"
    await assert_nothing_left()


async def test_client_that_disconnects_during_a_hedge_leaves_no_garbage(client: Client, upstream: FakeUpstream) -> None:
    script(upstream, silent, silent)
    reading = asyncio.create_task(ASKS["chat, streamed"].send(client, "raced"))
    await upstream.wait_started(1)
    reading.cancel()
    await assert_nothing_left()


@SOME
async def test_client_that_disconnects_between_two_attempts_leaves_no_garbage(
    client: Client, upstream: FakeUpstream, name: str
) -> None:
    script(upstream, lambda _: Reply.error(503, "no", headers={"retry-after": "3"}))
    reading = asyncio.create_task(ASKS[name].send(client, "retried"))
    await upstream.wait_ended(0)
    await meanwhile_another(client)
    reading.cancel()
    await assert_nothing_left()


@EACH
async def test_revoked_or_drained_call_leaves_no_garbage(
    client: Client, upstream: FakeUpstream, gateway: Gateway, name: str
) -> None:
    def revoke() -> None:
        gateway.active_calls.revoked("acme", "*")

    def drain() -> None:
        gateway.active_calls.cut_all(Draining())

    for fail, cut_off in ((silent, revoke), (stuck, drain)):
        script(upstream, fail)
        reading = asyncio.create_task(ASKS[name].send(client, "pair"))
        await upstream.wait_started(0, frames=int(fail is stuck))
        await meanwhile_another(client)
        cut_off()
        await reading
    await assert_nothing_left()


async def test_stream_that_exceeds_the_balance_leaves_no_garbage(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Keys
) -> None:
    await accounts.create("poor", balance=3 * NANO)
    key = await keys.create("poor", name="test")
    words = " ".join(["word"] * 40)
    headers = {"Authorization": f"Bearer {key.text}"}
    fields = {"messages": [{"role": "user", "content": words}]}
    assert await ASKS["chat, streamed"].send(client, "dear", headers=headers, **fields) == 200
    await assert_nothing_left()


# The request is refused ----------------------------------------------------------------------------------------------


@EACH
async def test_refused_request_leaves_no_garbage(
    client: Client, api_key: CreatedKey, accounts: Accounts, keys: Keys, name: str
) -> None:
    ask = ASKS[name]
    await accounts.create("broke", balance=0)
    broke = await keys.create("broke", name="test")
    assert await ask.send(client, "alone", headers={"Authorization": "Bearer sk-nobody"}) == 401
    assert await ask.send(client, "alone", headers={"Authorization": f"Bearer {broke.text}"}) == 429
    assert await ask.send(client, "unknown") == 403
    assert await ask.send(client, "alone", headers={"Content-Encoding": "gzip"}) == 400
    assert await ask.send(client, "alone", headers={"Idempotency-Key": "\u00e9"}) == 400
    assert await ask.send(client, "", temperature="hot", n="many", dimensions="no", speed="no") == 400
    await assert_nothing_left()


async def test_request_unsupported_by_every_target_leaves_no_garbage(client: Client) -> None:
    assert await ASKS["speech, as events"].send(client, "plain") == 400
    await assert_nothing_left()


async def test_requests_with_one_idempotency_key_leave_no_garbage(client: Client, upstream: FakeUpstream) -> None:
    script(upstream, slowly(right, 0.05))
    headers, ask = {"Idempotency-Key": "once"}, ASKS["chat"]
    statuses = await asyncio.gather(*(ask.send(client, "alone", headers=headers) for _ in range(2)))
    assert sorted(statuses) == [200, 409]
    assert await ask.send(client, "alone", headers=headers) == 200
    assert await ask.send(client, "alone", headers=headers, seed=1) == 400
    await assert_nothing_left()


# An upload goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["at once", "once what it sent was read"])
async def test_client_that_disconnects_during_an_upload_leaves_no_garbage(client: Client, moment: str) -> None:
    host, _, port = client.base_url.removeprefix("http://").partition(":")
    lines = [
        "POST /v1/audio/transcriptions HTTP/1.1",
        "Host: gateway",
        f"Authorization: {client.headers['Authorization']}",
        "Content-Type: multipart/form-data; boundary=edge",
        "Content-Length: 1000000",
    ]
    for _ in range(3):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write("\r\n".join([*lines, "", ""]).encode() + encode(("model", "alone"))[:60_000])
        if moment != "at once":
            await meanwhile_another(client)
        writer.transport.abort()
    await assert_nothing_left()


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_invalid_large_form_leaves_no_garbage(client: Client, coding: str) -> None:
    headers = {
        **client.headers,
        "Content-Type": "multipart/form-data; boundary=edge",
        "Content-Encoding": coding,
    }
    for data in (b"no form at all" * 10_000, encode(("model", "m" * 100_000), file=wav(20.0))):
        with contextlib.suppress(aiohttp.ClientError):  # refused while it is still being sent
            async with client.request("POST", "/v1/audio/transcriptions", headers=headers, data=data) as response:
                assert response.status == 400
    await assert_nothing_left()


async def test_upload_that_cannot_be_read_again_leaves_no_garbage(
    client: Client, upstream: FakeUpstream, gateway: Gateway, no_records: None
) -> None:
    def fail(reply: Reply) -> Reply:
        for thing in gc.get_objects():
            if isinstance(thing, Spool):
                thing.close()
        return Reply.error(503, "no")

    script(upstream, fail)
    assert await ASKS["transcription of a file on the disk"].send(client, "pair") >= 500
    await assert_nothing_left()

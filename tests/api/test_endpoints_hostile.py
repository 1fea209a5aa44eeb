"""Every endpoint beside chat with callers and upstreams that misbehave: nothing held, nothing left.

`settled` ends each test: no hold, a clean audit, no temporary file, and what was charged.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import io
import json
import wave
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.hostile.raw import RawClient, connection
from tests.polling import until

from .conftest import Client, record_holds

FORMS = {"transcription": "/v1/audio/transcriptions", "translation": "/v1/audio/translations"}
BALANCE = 10 * NANO
UNIT = NANO // 100
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90)).decode()


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """One model per endpoint and price unit, each with a second place to go."""
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    up["completions"] = True
    places = [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}]

    def model(endpoint: str, **price: Any) -> dict[str, Any]:
        return {"targets": places, "strategy": "in_order", "price": price, "endpoints": [endpoint], "retries": 1}

    tiers = [{"above_input_tokens": 3, "input": 20_000}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": up, "other": up},
            "groups": {"default": {}},
            "models": {
                "vectors": model("embeddings", input=10_000),
                "tiered": model("embeddings", input=10_000, tiers=tiers),
                "least": model("embeddings", input=10_000, minimum="0.05"),
                "called": model("embeddings", per_request="0.02"),
                "images": model("images", per_image={"*": {"*": "0.01"}}),
                "judge": model("moderation", per_request="0.01"),
                "ranks": model("rerank", input=10_000),
                "voice": model("speech", per_character=1000),
                "timed": model("speech", per_second_out="0.01"),
                "texts": model("chat", input=10_000, output=10_000),
                "ears": model("transcription", per_second_in="0.01"),
            },
        },
        demo=True,
    )


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"model": "texts", "prompt": [1, 2, 3], "max_tokens": 8}),
    "embeddings": ("/v1/embeddings", {"model": "vectors", "input": [[1, 2, 3]]}),
    "images": ("/v1/images/generations", {"model": "images", "prompt": "a heron"}),
    "moderation": ("/v1/moderations", {"model": "judge", "input": "heron"}),
    "rerank": ("/v1/rerank", {"model": "ranks", "query": "heron", "documents": ["heron"]}),
    "speech": ("/v1/audio/speech", {"model": "voice", "input": "heron", "voice": "alloy", "response_format": "pcm"}),
}
ENDPOINTS = [*REQUESTS, "edits", *FORMS]
EDITS = "/v1/images/edits"


def wav(seconds: float = 1.0) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * int(seconds * 16_000)))
    return buffer.getvalue()


def form(seconds: float = 1.0, *, boundary: str = "edge", model: str = "ears") -> bytes:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="'.encode()
    return (
        head + b'model"\r\n\r\n' + model.encode() + b"\r\n" + head + b'file"; filename="a.wav"\r\n\r\n' + wav(seconds)
        + f"\r\n--{boundary}--\r\n".encode()
    )  # fmt: skip


def edit_form(*, boundary: str = "edge") -> bytes:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="'.encode()
    return (
        head + b'model"\r\n\r\nimages\r\n' + head + b'prompt"\r\n\r\na heron\r\n'
        + head + b'image"; filename="a.png"\r\n\r\n' + base64.b64decode(PNG) + bytes(600_000)
        + f"\r\n--{boundary}--\r\n".encode()
    )  # fmt: skip


def request_of(endpoint: str, bearer: dict[str, str], *, seconds: float = 1.0) -> tuple[str, dict[str, str], bytes]:
    """Path, headers and body of a good request."""
    if endpoint in FORMS:
        return FORMS[endpoint], {**bearer, "Content-Type": "multipart/form-data; boundary=edge"}, form(seconds)
    if endpoint == "edits":
        return EDITS, {**bearer, "Content-Type": "multipart/form-data; boundary=edge"}, edit_form()
    path, document = REQUESTS[endpoint]
    return path, bearer, json.dumps(document).encode()


def head_of(path: str, headers: dict[str, str], length: int | None, **more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def spool_files(folder: Path) -> list[str]:
    """Open descriptors of unlinked files in that folder."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(str(folder / "tmp"))]


class After:
    """What must be true once everything is over."""

    def __init__(self, gateway: Gateway, accounts: Accounts, folder: Path) -> None:
        self.gateway, self.accounts, self.folder = gateway, accounts, folder

    async def charged(self) -> int:
        """Nano that account acme paid, once nothing is held and nothing is left over."""

        async def free() -> Any:
            account = await self.accounts.show("acme")
            return account if account.held == 0 else None

        account = await until(free)
        await self.gateway.settlement.drain()
        assert (await self.gateway.ledger.audit()).mismatches == []
        await until(lambda: not spool_files(self.folder))
        assert not list(self.folder.glob("tmp/*"))
        return BALANCE - int(account.balance)


@pytest.fixture
def after(gateway: Gateway, accounts: Accounts, tmp_path: Path) -> After:
    """The account and the folder of this test."""
    return After(gateway, accounts, tmp_path)


@pytest.fixture
def address(client: Client) -> tuple[str, int]:
    """Where the gateway listens."""
    return "127.0.0.1", int(client.base_url.rpartition(":")[2])


async def post(client: Client, path: str, headers: dict[str, str], body: Any) -> tuple[int, dict[str, str], bytes]:
    """Status, headers in lower case, and body."""
    async with client.request("POST", path, headers=headers, data=body) as response:
        data = await response.read()
        return response.status, {name.lower(): value for name, value in response.headers.items()}, data


# Callers who leave ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fin", "reset"])
@pytest.mark.parametrize("share", [0.0, 0.6, 0.99])
async def test_caller_that_disconnects_during_an_upload_has_no_call_and_no_hold(
    address: tuple[str, int], bearer: dict[str, str], upstream: FakeUpstream, after: After, share: float, how: str
) -> None:
    path, headers, body = request_of("transcription", bearer, seconds=20)
    before = descriptors()
    async with connection(address) as raw:
        await raw.send(head_of(path, headers, len(body)) + body[: int(len(body) * share)])
        await until(lambda: share == 0.0 or spool_files(after.folder))
        raw.finish() if how == "fin" else raw.reset()
        if how == "fin":
            await raw.read_all()
    assert await after.charged() == 0
    assert upstream.seen == []
    await until(lambda: descriptors() <= before + 2)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_caller_that_disconnects_while_waiting_pays_for_the_prompt_at_most(
    address: tuple[str, int], bearer: dict[str, str], upstream: FakeUpstream, after: After, endpoint: str
) -> None:
    upstream.enqueue(Reply.silence())
    path, headers, body = request_of(endpoint, bearer, seconds=20)
    async with connection(address) as raw:
        await raw.send(head_of(path, headers, len(body)) + body)
        await upstream.wait_started()
        raw.reset()
    assert (await upstream.wait_ended()).outcome == "left"
    assert await after.charged() <= 20 * UNIT


@pytest.mark.holds("prices.md#leaving-early-7")
@pytest.mark.parametrize(("policy", "paid"), [("drain", True), ("void", False)])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_disconnect_policy_applies_on_every_endpoint(
    client: Client, address: tuple[str, int], bearer: dict[str, str], gateway: Gateway, upstream: FakeUpstream,
    after: After, endpoint: str, policy: str, paid: bool,
) -> None:  # fmt: skip
    path, headers, body = request_of(endpoint, bearer)
    assert (await post(client, path, headers, body))[0] == 200
    whole = await after.charged()
    models = gateway.catalog.models
    for name, model in list(models.items()):
        models[name] = structs.replace(model, disconnect=policy)  # type: ignore[index]
    upstream.tamper = late
    async with connection(address) as raw:
        await raw.send(head_of(path, headers, len(body)) + body)
        await upstream.wait_started(1)
        raw.reset()
    assert (await upstream.wait_ended(1)).outcome == ("answered" if paid else "left")
    assert await after.charged() == (2 * whole if paid else whole)


def late(reply: Reply) -> Reply:
    return structs.replace(reply, delay=0.3)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_pipelined_request_is_answered_after_the_running_call(
    address: tuple[str, int], bearer: dict[str, str], upstream: FakeUpstream, after: After, endpoint: str
) -> None:
    path, headers, body = request_of(endpoint, bearer)
    async with connection(address) as raw:
        await raw.send((head_of(path, headers, len(body)) + body) * 3)
        texts = [await read_any(raw) for _ in range(3)]
    assert all(text.startswith(b"HTTP/1.1 200") for text in texts)
    assert len(upstream.seen) == 3
    assert await after.charged() > 0


async def read_any(raw: RawClient) -> bytes:
    """One answer, with a length or chunked."""
    async with asyncio.timeout(60):
        head = await raw.reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        if b"content-length: " in lower:
            length = int(lower.partition(b"content-length: ")[2].split(b"\r\n")[0])
            return head + await raw.reader.readexactly(length)
        return head + await raw.reader.readuntil(b"0\r\n\r\n")


# Odd uploads ---------------------------------------------------------------------------------------------------------


async def test_upload_in_chunks_of_one_byte_is_read(
    address: tuple[str, int], bearer: dict[str, str], after: After
) -> None:
    path, headers, body = request_of("transcription", bearer, seconds=0.05)
    async with connection(address) as raw:
        await raw.send(head_of(path, headers, None, Transfer_Encoding="chunked"))
        await raw.send(b"".join(b"1;x=y\r\n%b\r\n" % body[at : at + 1] for at in range(len(body))) + b"0\r\n\r\n")
        assert (await read_any(raw)).startswith(b"HTTP/1.1 200")
    assert await after.charged() > 0


@pytest.mark.parametrize("length", ["-1", "+5", "5, 6", "1e3", "0x10", "99999999999999999999999", "", " "])
async def test_invalid_length_is_refused(
    address: tuple[str, int], bearer: dict[str, str], upstream: FakeUpstream, after: After, length: str
) -> None:
    path, headers, body = request_of("transcription", bearer)
    async with connection(address) as raw:
        await raw.send(head_of(path, headers, None, Content_Length=length) + body)
        assert (await read_any(raw)).split(b" ")[1] in (b"400", b"413")
    assert await after.charged() == 0
    assert upstream.seen == []


@pytest.mark.parametrize("difference", [-100, 100])
async def test_form_with_a_wrong_length_is_refused(
    address: tuple[str, int], bearer: dict[str, str], upstream: FakeUpstream, after: After, difference: int
) -> None:
    path, headers, body = request_of("transcription", bearer)
    async with connection(address) as raw:
        await raw.send(head_of(path, headers, len(body) + difference) + body)
        raw.finish()
        answers = await raw.read_all()
    assert all(answer.status == 400 for answer in answers)
    assert await after.charged() == 0
    assert upstream.seen == []


async def test_bytes_after_a_compressed_form_are_refused_and_not_kept(
    client: Client, bearer: dict[str, str], upstream: FakeUpstream, after: After
) -> None:
    """zlib keeps what follows: 26 MB of it took 3.5 s of the loop and as much memory."""
    path, headers, body = request_of("transcription", bearer)
    data = gzip.compress(body) + bytes(3 << 20)
    status, _, text = await post(client, path, {**headers, "Content-Encoding": "gzip"}, io.BytesIO(data))
    assert (status, json.loads(text)["error"]["code"]) == (400, "invalid_value")
    assert await after.charged() == 0
    assert upstream.seen == []


async def test_key_revoked_during_an_upload_is_refused_at_its_end(
    address: tuple[str, int],
    bearer: dict[str, str],
    api_key: CreatedKey,
    keys: Keys,
    upstream: FakeUpstream,
    after: After,
) -> None:
    path, headers, body = request_of("transcription", bearer, seconds=20)
    async with connection(address) as raw:
        await raw.send(head_of(path, headers, len(body)) + body[:400_000])
        await until(lambda: spool_files(after.folder))
        await keys.revoke(api_key.id)
        await raw.send(body[400_000:])
        assert (await read_any(raw)).startswith(b"HTTP/1.1 401")
    assert await after.charged() == 0
    assert upstream.seen == []


# Idempotency ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_repeated_request_gets_the_same_answer_for_one_charge(
    client: Client, bearer: dict[str, str], upstream: FakeUpstream, after: After, endpoint: str
) -> None:
    path, headers, body = request_of(endpoint, bearer)
    headers = {**headers, "Idempotency-Key": "once"}
    first = await post(client, path, headers, body)
    charged = await after.charged()
    if endpoint == "edits" or endpoint in FORMS:
        encoded = edit_form if endpoint == "edits" else form
        headers["Content-Type"], body = "multipart/form-data; boundary=another", encoded(boundary="another")
    again = await post(client, path, headers, body)
    assert (again[0], again[2]) == (200, first[2])
    assert again[1]["content-type"] == first[1]["content-type"]
    assert again[1]["idempotent-replayed"] == "true"
    assert len(upstream.seen) == 1
    assert await after.charged() == charged > 0


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_caller_that_disconnects_finds_the_answer_by_its_idempotency_key(
    client: Client,
    address: tuple[str, int],
    bearer: dict[str, str],
    upstream: FakeUpstream,
    after: After,
    endpoint: str,
) -> None:
    upstream.tamper = late
    path, headers, body = request_of(endpoint, bearer, seconds=20)
    headers = {**headers, "Idempotency-Key": "once"}
    async with connection(address) as raw:
        await raw.send(head_of(path, headers, len(body)) + body)
        await upstream.wait_started()
        raw.reset()
    await upstream.wait_ended()
    charged = await after.charged()

    async def replayed() -> Any:
        answer = await post(client, path, headers, body)
        return answer if answer[0] == 200 else None

    status, shown, _ = await until(replayed)
    assert (status, shown["idempotent-replayed"]) == (200, "true")
    assert len(upstream.seen) == 1
    assert await after.charged() == charged > 0


# Upstreams -----------------------------------------------------------------------------------------------------------

LIES: list[Any] = [
    [], 5, "x", {}, {"data": None}, {"data": 5}, {"data": [None]}, {"data": [[]]}, {"data": [{}]}, {"error": 5},
    {"data": [{"embedding": None}]}, {"data": [{"embedding": []}]}, {"data": [{"embedding": [None]}]},
    {"data": [{"embedding": ["1"]}]}, {"data": [{"embedding": [True]}]}, {"data": [{"embedding": "!!!!"}]},
    {"data": [{"embedding": "AAA="}]}, {"data": [{"embedding": "AADAfw=="}]}, {"data": [{"embedding": [1e39]}]},
    {"data": [{"embedding": [1]}, {"embedding": [1]}]}, {"data": [{"embedding": [1], "index": 7}]},
    {"results": [{"flagged": 5}]}, {"results": [{"flagged": True, "categories": {}}]},
    {"results": [{"flagged": True, "categories": {}, "category_scores": {"hate": 2}}]},
    {"results": [{"flagged": True, "categories": {"hate": 5}, "category_scores": {"hate": "1"}}] * 2},
    {"results": [{"index": 0}]}, {"results": [{"index": 1, "relevance_score": 1}]}, {"results": 5}, {"results": [5]},
    {"results": [{"index": 0, "relevance_score": "1"}]}, {"results": [{"index": 0, "relevance_score": True}]},
    {"data": [{"b64_json": 5}]}, {"data": [{"b64_json": ""}]}, {"data": [{"b64_json": "not base64"}]},
    {"data": [{"b64_json": "AAA"}]}, {"data": [{"url": 5}]}, {"text": None}, {"text": 5}, {"text": []},
    {"text": "x", "segments": 5}, {"text": "x", "words": [5]}, {"text": "x", "duration": "long"},
]  # fmt: skip


@pytest.mark.parametrize("endpoint", ["completions", "edits", "embeddings", "images", "moderation", "rerank", *FORMS])
async def test_invalid_upstream_answers_give_a_502_or_an_answer_and_never_a_500(
    client: Client, bearer: dict[str, str], upstream: FakeUpstream, after: After, endpoint: str
) -> None:
    path, headers, body = request_of(endpoint, bearer)
    for lie in LIES:
        upstream.answer = lambda _, lie=lie: Reply.json(lie)  # type: ignore[misc]
        status, _, text = await post(client, path, headers, body)
        assert status in (200, 502, 503), (lie, status, text)
        assert status != 200 or endpoint in FORMS, (lie, text)
    for raw in (
        b"NaN",
        b'{"data":[{"embedding":[NaN]}]}',
        b'{"data":[{"embedding":[Infinity]}]}',
        b'{"results":[{"index":0,"relevance_score":1e999}]}',
        b"\xff",
        b"[" * 9999,
    ):
        upstream.answer = lambda _, raw=raw: Reply(headers={"Content-Type": "application/json"}, body=raw)  # type: ignore[misc]
        status, _, text = await post(client, path, headers, body)
        assert status in (502, 503), (raw, status, text)
    await after.charged()


USAGES: list[Any] = [
    {"prompt_tokens": 10**9, "total_tokens": 10**9, "input_tokens": 10**9, "output_tokens": 10**9, "seconds": 1e9},
    {"prompt_tokens": -5, "total_tokens": -5, "input_tokens": -5, "output_tokens": -5, "seconds": -5},
    {"prompt_tokens": "5", "input_tokens": [5], "output_tokens": {}, "seconds": "5"},
    {"prompt_tokens": 1e300, "input_tokens": 1e300, "seconds": 1e300},
    5, "x", [], [5],
]  # fmt: skip


@pytest.mark.parametrize("endpoint", ["completions", "edits", "embeddings", "images", "rerank", *FORMS])
async def test_absurd_usage_costs_no_more_than_its_bounds_and_never_nothing(
    client: Client, bearer: dict[str, str], gateway: Gateway, upstream: FakeUpstream, after: After, endpoint: str
) -> None:
    path, headers, body = request_of(endpoint, bearer)
    holds = record_holds(gateway)
    await gateway.ledger.credit("acme", 10 * BALANCE)
    before = await after.charged()
    for usage in USAGES:
        timed = {"type": "duration", **usage} if isinstance(usage, dict) else usage
        answers = {
            "embeddings": {"data": [{"embedding": [1.0], "index": 0}], "usage": usage},
            "edits": {"data": [{"b64_json": PNG}], "usage": usage},
            "images": {"data": [{"b64_json": PNG}], "usage": usage},
            "completions": {"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}], "usage": usage},
            "rerank": {"results": [{"index": 0, "relevance_score": 1.0}], "usage": usage},
            **{name: {"text": "x", "usage": timed} for name in FORMS},
        }
        upstream.answer = lambda _, answers=answers: Reply.json(answers[endpoint])  # type: ignore[misc]
        status, _, text = await post(client, path, headers, body)
        assert status == 200, (usage, text)
        charged = await after.charged()
        is_bounded = endpoint not in ("completions", "embeddings", "rerank")
        most = holds[-1].amount if is_bounded else (len(body) + 4096 + 8) * UNIT
        assert 0 < charged - before <= most, usage
        before = charged


@pytest.mark.parametrize("format", ["opus", "wav", "aac", "mp3"])
async def test_audio_with_an_impossible_length_does_not_empty_the_account(
    client: Client, bearer: dict[str, str], upstream: FakeUpstream, after: After, format: str
) -> None:
    many = b"\xff\xff\xff\xff"
    slow = b"\x10\0\0\0\1\0\1\0\1\0\0\0\1\0\0\0\1\0\x08\0"  # a byte a second
    sounds = {
        "opus": b"OggS\0\4" + (2**62).to_bytes(8, "little") + bytes(4013),
        "wav": b"RIFF" + many + b"WAVEfmt " + slow + b"data" + many + bytes(4000),
        "aac": b"\xff\xf1\x70\0\0\xff\x03" * 600,
        "mp3": b"\xff\xfb\x10\xc4" * 1000,
    }
    path, headers, _ = request_of("speech", bearer)
    upstream.answer = lambda _: Reply(headers={"Content-Type": "audio/x"}, frames=[sounds[format]])
    body = {"model": "timed", "input": "heron", "voice": "alloy", "response_format": format}
    await post(client, path, headers, json.dumps(body))
    assert await after.charged() <= 60 * UNIT  # 4 KB of sound


@pytest.mark.parametrize("answer", ["cut", "cut-image", "silent-cut"])
async def test_cut_answer_is_retried_on_another_target_with_the_whole_file(
    client: Client, bearer: dict[str, str], upstream: FakeUpstream, after: After, answer: str
) -> None:
    endpoint = "images" if answer == "cut-image" else "transcription"
    path, headers, body = request_of(endpoint, bearer, seconds=20)
    if answer == "silent-cut":
        upstream.enqueue(Reply.hang_up())
    else:
        upstream.enqueue(Reply(headers={"Content-Type": "application/json"}, body=b"{" * 500_000, cut_after=99_000))
    status, _, text = await post(client, path, headers, body)
    assert status == 200, text
    assert len(upstream.seen) == 2
    if endpoint == "transcription":
        assert f"{len(wav(20))} bytes" in text.decode()
    assert await after.charged() > 0


@pytest.mark.slow
async def test_image_of_sixty_megabytes_is_accepted(
    client: Client, bearer: dict[str, str], upstream: FakeUpstream, after: After
) -> None:
    path, headers, body = request_of("images", bearer)
    image = PNG + "AAAA" * (15 << 20)
    upstream.enqueue(Reply.json({"created": 1, "data": [{"b64_json": image}]}))
    status, _, text = await post(client, path, headers, body)
    assert (status, len(text) > len(image)) == (200, True)
    assert await after.charged() == UNIT


# Prices --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "tokens", "held", "charged"),
    [("vectors", 3, 3, 3), ("tiered", 3, 3, 3), ("tiered", 4, 8, 8), ("least", 3, 5, 5), ("called", 3, 2, 2)],
)
async def test_token_numbers_are_held_and_charged_to_the_unit(
    client: Client,
    bearer: dict[str, str],
    gateway: Gateway,
    upstream: FakeUpstream,
    after: After,
    model: str,
    tokens: int,
    held: int,
    charged: int,
) -> None:
    holds = record_holds(gateway)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    upstream.enqueue(Reply.json({"data": [{"embedding": [1.0], "index": 0}], "usage": usage}))
    body = json.dumps({"model": model, "input": [list(range(tokens))]})
    assert (await post(client, "/v1/embeddings", bearer, body))[0] == 200
    assert holds[0].amount == held * UNIT
    assert await after.charged() == charged * UNIT


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_balance_too_small_by_one_is_refused_before_the_upstream(
    client: Client, accounts: Accounts, keys: Keys, upstream: FakeUpstream, gateway: Gateway, after: After,
    bearer: dict[str, str], endpoint: str,
) -> None:  # fmt: skip
    holds = record_holds(gateway)
    path, headers, body = request_of(endpoint, bearer, seconds=3)  # what the upstream hears
    assert (await post(client, path, headers, body))[0] == 200
    await accounts.create("poor", balance=holds[0].amount - 1)
    await accounts.create("just", balance=holds[0].amount)
    poor, just = (await keys.create("poor")).text, (await keys.create("just")).text
    status, shown, _ = await post(client, path, {**headers, "Authorization": f"Bearer {poor}"}, body)
    assert (status, shown["x-should-retry"]) == (429, "false")
    assert len(upstream.seen) == 1
    assert (await post(client, path, {**headers, "Authorization": f"Bearer {just}"}, body))[0] == 200
    await until_free(accounts, "just")
    assert (await accounts.show("just")).balance >= 0
    assert (await accounts.show("poor")).balance == holds[0].amount - 1
    assert await after.charged() > 0


async def until_free(accounts: Accounts, name: str) -> None:
    async def free() -> bool:
        return (await accounts.show(name)).held == 0

    await until(free)

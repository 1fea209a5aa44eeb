"""Edits of images and their variations: what goes up, what comes down, what is charged, and every refusal."""

from __future__ import annotations

import asyncio
import io
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import PIXEL
from gateway.testing.reply import Seen
from gateway.uploads.form import Form, FormReader
from gateway.uploads.pictures import NAMES
from gateway.uploads.spool import Spool
from tests.api.conftest import Client, record_holds
from tests.ledger_lines import last_line
from tests.polling import until

EDITS, VARIATIONS = "/v1/images/edits", "/v1/images/variations"
CENT = NANO // 100
TOKEN = NANO // 1000
LIMIT = 3 * 2**20
PNG = b64decode(PIXEL)
JPEG, WEBP = b"\xff\xd8\xff" + bytes(20), b"RIFF\0\0\0\0WEBP" + bytes(20)
Part = tuple[str, str | tuple[str, bytes]]


async def released(accounts: Accounts) -> Any:
    """The account once nothing is held; the answer of a failed call may arrive before its settlement is stored."""
    account = await accounts.show("acme")
    return account if account.held == 0 else None


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Image models priced by image and by token, and one that only chats."""
    up = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    model = {"provider": "up", "model": "upstream-i1", "price": {"per_image": {"*": "0.01"}}, "endpoints": ["images"]}
    places = [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"limits": {"default_image_model": "i1", "max_image_body": LIMIT}},
            "providers": {
                "up": {**up, "forward_params": ["seed"]},
                "other": up,
                "fake": {"plugin": "fake"},
                "gemini": {"plugin": "gemini", "base_url": f"{upstream.url}/v1beta", "api_key": "AIzaSycanary-0123456"},
            },
            "groups": {"default": {}, "inner": {}},
            "models": {
                "i1": model,
                "tokens": {**model, "price": {"input": 1000, "image_input": 2000, "image_output": 1000}},
                "cheap": {**model, "price": {"input": 100, "image_input": 200, "image_output": 100}},
                "two": {"targets": places, "strategy": "in_order", "price": model["price"], "endpoints": ["images"]},
                "secret": {**model, "groups": ["inner"]},
                "chat": {"provider": "up", "price": {"input": 1, "output": 1}},
                "other-dialect": {**model, "provider": "gemini"},
                "made-up": {**model, "provider": "fake"},
            },
        },
        demo=True,
    )


def encode(*parts: Part) -> bytes:
    """A form; a part is a text, or a file's name and content."""
    body = b""
    for name, value in parts:
        text = value.encode() if isinstance(value, str) else value[1]
        filename = "" if isinstance(value, str) else f'; filename="{value[0]}"'
        body += f'--edge\r\nContent-Disposition: form-data; name="{name}"{filename}\r\n\r\n'.encode() + text + b"\r\n"
    return body + b"--edge--\r\n"


def edit(*images: Part, **fields: str) -> bytes:
    """A whole form."""
    texts = {"model": "i1", "prompt": "a hat", **fields}
    return encode(*((name, text) for name, text in texts.items() if text), *(images or (("image", ("a.png", PNG)),)))


async def send(
    client: Client, body: bytes, *, path: str = EDITS, **headers: str
) -> tuple[aiohttp.ClientResponse, bytes]:
    media_type = {"Content-Type": "multipart/form-data; boundary=edge"}
    async with client.request(
        "POST", path, data=io.BytesIO(body), headers={**client.headers, **media_type, **headers}
    ) as response:
        return response, await response.read()


def received(seen: Seen) -> tuple[Form, Spool]:
    """The form that went up, and its files."""
    spool = Spool(Path())
    reader = FormReader(seen.headers["content-type"], spool, file="image", more_files=NAMES, most_files=18)
    reader.feed(seen.body)
    return reader.finish(), spool


async def line_of(ledger: Ledger, response: aiohttp.ClientResponse) -> Any:
    return await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))


# The answer ----------------------------------------------------------------------------------------------------------


async def test_image_and_fields_go_up_and_an_image_comes_down(client: Client, upstream: FakeUpstream) -> None:
    body = edit(n="2", size="1024x1024", quality="low", input_fidelity="high", user="ann", seed="7", priority="1")
    response, answer = await send(client, body)
    document = msgspec.json.decode(answer)
    assert (response.status, [one["b64_json"] for one in document["data"]]) == (200, [PIXEL, PIXEL])
    assert response.headers["x-gateway-dropped-params"] == "priority"
    seen = upstream.seen[0]
    assert seen.path == EDITS
    form, spool = received(seen)
    assert dict(form.texts) == {
        "model": "upstream-i1", "response_format": "b64_json", "prompt": "a hat", "n": "2", "size": "1024x1024",
        "quality": "low", "input_fidelity": "high", "user": "ann", "seed": "7",
    }  # fmt: skip
    [file] = form.files
    assert (file.name, file.filename, file.content_type) == ("image", "a.png", "image/png")
    assert await spool.read(file.start, file.size) == PNG
    assert seen.headers["authorization"] == "Bearer sk-upstream-canary-0123456789"


@pytest.mark.parametrize("size", [0, 400_000])  # in memory, and on the disk
@pytest.mark.parametrize("name", ["image", "image[]", "image[0]"])
async def test_several_images_and_a_mask_go_up_byte_for_byte(
    client: Client, upstream: FakeUpstream, name: str, size: int
) -> None:
    contents = [PNG + b"1" * size, JPEG + b"2" * size, WEBP + b"3" * size, PNG + b"4" * size]
    files: list[Part] = [
        (name, ("one.png", contents[0])), (name, ("../two", contents[1])), (name, ("", contents[2])),
        ("mask", ("mask.png", contents[3])),
    ]  # fmt: skip
    response, _ = await send(client, edit(*files))
    assert response.status == 200
    form, spool = received(upstream.seen[0])
    assert [(file.name, file.filename, file.content_type) for file in form.files] == [
        ("image[]", "one.png", "image/png"),
        ("image[]", "two.jpg", "image/jpeg"),
        ("image[]", "image.webp", "image/webp"),
        ("mask", "mask.png", "image/png"),
    ]
    assert [await spool.read(file.start, file.size) for file in form.files] == contents


async def test_stream_has_events_of_edits(client: Client, upstream: FakeUpstream) -> None:
    response, answer = await send(client, edit(stream="true", partial_images="2"))
    assert response.headers["Content-Type"].startswith("text/event-stream")
    names = [line[7:] for line in answer.decode().splitlines() if line.startswith("event: ")]
    assert names == ["image_edit.partial_image"] * 2 + ["image_edit.completed"]
    assert dict(received(upstream.seen[0])[0].texts)["partial_images"] == "2"


async def test_variation_has_no_prompt(client: Client, upstream: FakeUpstream) -> None:
    response, answer = await send(client, edit(prompt="", n="2"), path=VARIATIONS)
    assert (response.status, len(msgspec.json.decode(answer)["data"])) == (200, 2)
    assert upstream.seen[0].path == VARIATIONS
    assert "prompt" not in dict(received(upstream.seen[0])[0].texts)


async def test_model_defaults_to_that_of_generations(client: Client, upstream: FakeUpstream) -> None:
    response, _ = await send(client, edit(model=""))
    assert response.status == 200
    assert dict(received(upstream.seen[0])[0].texts)["model"] == "upstream-i1"


async def test_made_up_edit_depends_on_the_image(client: Client) -> None:
    bodies = [edit(("image", ("a.png", PNG + end)), model="made-up") for end in (b"", b"1", b"")]
    one, two, again = [msgspec.json.decode((await send(client, body))[1])["data"] for body in bodies]
    assert one == again != two


async def test_second_target_gets_the_whole_image_again(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(Reply.error(500, "broken"))
    response, _ = await send(client, edit(("image", ("a.png", PNG + bytes(500_000))), model="two"))
    assert response.status == 200
    sent = [[file.size for file in received(seen)[0].files] for seen in upstream.seen]
    assert sent == [[len(PNG) + 500_000]] * 2
    assert (await line_of(ledger, response)).amount == -CENT


# Money ---------------------------------------------------------------------------------------------------------------


async def test_charge_is_by_image_or_by_the_upstreams_tokens(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    response, _ = await send(client, edit(n="2"))
    assert (await line_of(ledger, response)).amount == -2 * CENT
    details = {"text_tokens": 10, "image_tokens": 300}
    usage = {"input_tokens": 310, "output_tokens": 100, "total_tokens": 410, "input_tokens_details": details}
    upstream.enqueue(Reply.json({"created": 1, "data": [{"b64_json": PIXEL}], "usage": usage}))
    response, answer = await send(client, edit(model="tokens", quality="low", size="1024x1024"))
    assert (await line_of(ledger, response)).amount == -(10 + 2 * 300 + 100) * TOKEN
    assert msgspec.json.decode(answer)["usage"]["input_tokens_details"] == details
    assert (await until(lambda: released(accounts))).held == 0


@pytest.mark.holds("prices.md#estimates-22")
@pytest.mark.parametrize(("fidelity", "tokens"), [("low", 1100), ("high", 7340)])
async def test_given_images_are_held_by_their_number(
    client: Client, upstream: FakeUpstream, gateway: Gateway, fidelity: str, tokens: int
) -> None:
    holds = record_holds(gateway)
    files: list[Part] = [("image", ("a.png", PNG)), ("image", ("b.png", PNG)), ("mask", ("c.png", PNG))]
    await send(client, edit(*files, model="cheap", quality="low", size="1024x1024", input_fidelity=fidelity))
    [hold] = holds
    assert hold.amount == (3 + 3 * tokens * 2 + 500) * TOKEN // 10


async def test_same_idempotency_key_runs_once(client: Client, upstream: FakeUpstream, accounts: Accounts) -> None:
    _, first = await send(client, edit(), **{"Idempotency-Key": "order-1"})
    response, again = await send(client, edit(), **{"Idempotency-Key": "order-1"})
    assert response.headers["Idempotent-Replayed"] == "true"
    assert (again, len(upstream.seen)) == (first, 1)
    other, _ = await send(client, edit(("image", ("a.png", PNG + b"1"))), **{"Idempotency-Key": "order-1"})
    assert other.status == 400
    assert (await until(lambda: released(accounts))).balance == 10 * NANO - CENT


# Refusals ------------------------------------------------------------------------------------------------------------

A: Part = ("image", ("a.png", PNG))
BAD: list[tuple[str, bytes, int, str, str | None]] = [
    (EDITS, encode(("model", "i1"), ("prompt", "x")), 400, "missing_required_parameter", "image"),
    (EDITS, edit(prompt=""), 400, "missing_required_parameter", "prompt"),
    (EDITS, edit(("mask", ("m.png", PNG))), 400, "missing_required_parameter", "image"),
    (EDITS, edit(("image", ("a.png", b""))), 400, "invalid_value", "image"),
    (EDITS, edit(("image", ("a.png", b"no image at all"))), 400, "invalid_value", "image"),
    (EDITS, edit(("image", ("a.gif", b"GIF89a" + bytes(20)))), 400, "invalid_value", "image"),
    (EDITS, edit(*[A] * 17), 400, "array_above_max_length", "image"),
    (EDITS, edit(*[A] * 19), 400, "invalid_value", "image"),
    (EDITS, edit(A, ("mask", ("m.jpg", JPEG))), 400, "invalid_value", "mask"),
    (EDITS, edit(A, ("mask", ("m.png", PNG)), ("mask", ("m.png", PNG))), 400, "array_above_max_length", "mask"),
    (EDITS, edit(A, ("mask", ("m.png", PNG)), ("markup", ("m.png", PNG))), 400, "invalid_value", "markup"),
    (EDITS, edit(n="0"), 400, "integer_below_min_value", "n"),
    (EDITS, edit(n="many"), 400, "invalid_type", "n"),
    (EDITS, edit(stream="perhaps"), 400, "invalid_type", "stream"),
    (EDITS, edit(size="large"), 400, "invalid_value", "size"),
    (EDITS, edit(input_fidelity="none"), 400, "invalid_value", "input_fidelity"),
    (EDITS, edit(partial_images="2"), 400, "invalid_value", "partial_images"),
    (EDITS, edit(A, ("n", "1"), ("n", "2")), 400, "invalid_value", "n"),
    (EDITS, edit(A, ("svg", "x"), ("svg[model]", "y")), 400, "invalid_value", "svg[model]"),
    (EDITS, edit(model="chat"), 400, "unsupported_parameter", "model"),
    (EDITS, edit(model="other-dialect"), 400, "unsupported_parameter", "model"),
    (EDITS, edit(model="nowhere"), 403, "model_not_permitted", "model"),
    (EDITS, edit(model="secret"), 403, "model_not_permitted", "model"),
    (EDITS, edit()[:-10], 400, "invalid_value", None),
    (VARIATIONS, edit(), 400, "invalid_value", "prompt"),
    (VARIATIONS, edit(A, A, prompt=""), 400, "invalid_value", "image"),
    (VARIATIONS, edit(A, ("mask", ("m.png", PNG)), prompt=""), 400, "invalid_value", "mask"),
    (VARIATIONS, edit(prompt="", stream="true"), 400, "invalid_value", "stream"),
]


@pytest.mark.parametrize(("path", "body", "status", "code", "param"), BAD)
async def test_invalid_form_gets_its_error_and_nothing_is_held_or_sent(
    client: Client, upstream: FakeUpstream, gateway: Gateway, path: str, body: bytes, status: int, code: str, param: Any
) -> None:
    holds = record_holds(gateway)
    response, answer = await send(client, body, path=path)
    error = msgspec.json.decode(answer)["error"]
    assert (response.status, error["code"], error["param"]) == (status, code, param), error
    assert holds == [] and upstream.seen == []


async def test_json_is_an_unsupported_media_type(client: Client) -> None:
    async with client.request("POST", EDITS, json={"model": "i1", "prompt": "x"}) as response:
        error = (await response.json())["error"]
    assert (response.status, error["code"]) == (415, "unsupported_content_type")


async def test_mask_above_its_size_and_form_above_its_limit_are_refused(
    client: Client, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.uploads.pictures.MAX_SIZE", {"image": 2**20, "mask": 1000, "markup": 1000})
    response, answer = await send(client, edit(A, ("mask", ("m.png", PNG + bytes(1000)))))
    assert (response.status, msgspec.json.decode(answer)["error"]["param"]) == (400, "mask")
    response, _ = await send(client, edit(("image", ("a.png", PNG + bytes(LIMIT)))))
    assert response.status == 413
    assert upstream.seen == []


async def test_caller_that_disconnects_closes_the_upstream_and_leaves_no_hold(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(Reply.silence())
    task = asyncio.ensure_future(send(client, edit()))
    await upstream.wait_started()
    task.cancel()
    assert (await upstream.wait_ended()).outcome == "left"
    assert (await until(lambda: released(accounts))).held == 0

"""Images that the upstream made and charged for, in another form than the requested one.

https://github.com/use-agent-os/agent-os/issues/2446: a server answers `POST /images/generations` with an address
although base64 was expected. The answer was an error, and the image that was paid for was lost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client

URL = "https://images.example.com/heron.png"
DATA = "iVBORw0KGgoAAAANSUhEUgAAAAE="
FORM = "x-gateway-response-format"


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """An image model on the scripted server."""
    model = {"provider": "up", "price": {"per_image": {"*": "0.01"}}, "endpoints": ["images"], "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": {"plugin": "openai", "base_url": upstream.base_url}},
            "groups": {"default": {}},
            "models": {"m1": model},
        },
        demo=True,
    )


async def made(client: Client, upstream: FakeUpstream, *images: Any, **fields: Any) -> tuple[int, Any, str | None]:
    """The status, the images and the header of the form, for what the upstream answers."""
    upstream.enqueue(Reply.json({"data": list(images)}))
    body = {"model": "m1", "prompt": "a grey heron", **fields}
    async with client.request("POST", "/v1/images/generations", json=body) as response:
        return response.status, (await response.json()).get("data"), response.headers.get(FORM)


@pytest.mark.parametrize("fields", [{}, {"response_format": None}, {"response_format": "b64_json"}])
@pytest.mark.parametrize("more", [{}, {"b64_json": None}, {"b64_json": ""}, {"b64_json": "not base64"}])
async def test_image_that_came_as_an_address_is_delivered_as_one(
    client: Client, upstream: FakeUpstream, fields: dict[str, Any], more: dict[str, Any]
) -> None:
    assert await made(client, upstream, {"url": URL, **more}, **fields) == (200, [{"url": URL}], "url")


async def test_image_that_came_as_base64_is_delivered_where_an_address_was_asked(
    client: Client, upstream: FakeUpstream
) -> None:
    wanted = (200, [{"b64_json": DATA}], "b64_json")
    assert await made(client, upstream, {"b64_json": DATA}, response_format="url") == wanted


@pytest.mark.parametrize("name", ["url", "b64_json"])
async def test_data_url_is_base64(client: Client, upstream: FakeUpstream, name: str) -> None:
    image = {name: f"data:image/png;base64,{DATA}"}
    assert await made(client, upstream, image) == (200, [{"b64_json": DATA}], None)


async def test_requested_form_is_taken_of_an_image_that_has_both(client: Client, upstream: FakeUpstream) -> None:
    both = {"url": URL, "b64_json": DATA}
    assert await made(client, upstream, both) == (200, [{"b64_json": DATA}], None)
    assert await made(client, upstream, both, response_format="url") == (200, [{"url": URL}], None)


async def test_images_that_can_be_used_are_delivered_without_the_others(client: Client, upstream: FakeUpstream) -> None:
    status, images, form = await made(client, upstream, {}, {"b64_json": DATA}, {"url": URL}, n=3)
    assert (status, images, form) == (200, [{"b64_json": DATA}, {"url": URL}], "url")


@pytest.mark.parametrize("url", ["", "javascript:alert(1)", "file:///etc/passwd", "//x/y.png", "data:image/png,x"])
async def test_answer_without_any_image_is_invalid(client: Client, upstream: FakeUpstream, url: str) -> None:
    assert (await made(client, upstream, {"url": url}))[0] == 502


async def test_stream_from_a_server_that_answers_whole_has_the_address(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json({"data": [{"url": URL}]}))
    body = {"model": "m1", "prompt": "a grey heron", "stream": True}
    async with client.request("POST", "/v1/images/generations", json=body) as response:
        text = await response.text()
    event = json.loads(text.partition("data: ")[2])
    assert (event["type"], event["url"], event["b64_json"]) == ("image_generation.completed", URL, "")

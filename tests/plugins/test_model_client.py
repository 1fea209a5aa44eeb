"""`ModelClient`: a hook asks models of the gateway by its API, and takes nothing but a valid answer."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tornado.ioloop import IOLoop

from gateway import GatewayModels, ModelClient, Secret, Upstream
from gateway.errors import UpstreamError
from gateway.testing import Reply, Seen, background_upstream

RESULT = {"flagged": True, "categories": {"violence": True}, "category_scores": {"violence": 0.9}}
REPLIES: list[Reply] = []
SEEN: list[Seen] = []


def answer(seen: Seen) -> Reply:
    SEEN.append(seen)
    return REPLIES.pop()


@pytest.fixture
def url() -> Iterator[str]:
    SEEN.clear()
    REPLIES.clear()
    with background_upstream(answer) as url:
        yield url


@pytest.fixture
def models(io_loop: IOLoop, url: str) -> Iterator[ModelClient]:
    upstream = Upstream()
    key = Secret.parse("sk-hook-0123456789", literals=True)
    yield ModelClient(upstream, GatewayModels(url=f"{url}/v1/", api_key=key))
    io_loop.run_sync(upstream.close)


async def test_a_text_gets_its_vector(models: ModelClient) -> None:
    REPLIES.append(Reply.json({"data": [{"embedding": [0.5, 1]}]}))
    assert await models.embed("small", "Hello") == [0.5, 1.0]
    [seen] = SEEN
    assert (seen.path, seen.headers["authorization"]) == ("/v1/embeddings", "Bearer sk-hook-0123456789")
    assert msgspec.json.decode(seen.body)["input"] == "Hello"


async def test_each_text_gets_a_moderation(models: ModelClient) -> None:
    REPLIES.append(Reply.json({"results": [RESULT, {**RESULT, "flagged": False}]}))
    assert [one.flagged for one in await models.moderate("omni", ["a", "b"])] == [True, False]


@pytest.mark.parametrize(
    "reply",
    [
        Reply.json({"data": []}),
        Reply.json({"data": [{"embedding": []}]}),
        Reply.json({"data": [{"embedding": ["a"]}]}),
        Reply.json({"results": [RESULT]}),
        Reply(body=b"\xff"),
        Reply.error(429, "wait, sk-hook-0123456789"),
    ],
)
async def test_any_other_answer_is_an_error_without_the_key(models: ModelClient, reply: Reply) -> None:
    for asked in (models.embed("small", "a"), models.moderate("omni", ["a", "b"])):
        REPLIES.append(reply)
        with pytest.raises(UpstreamError) as error:
            await asked
        assert "sk-hook" not in f"{error.value} {error.value.body()!r}"


@pytest.mark.parametrize("wrong", ["http://example.com/v1", "ftp://x", "http://127.0.0.1.example.com/v1"])
def test_an_address_without_encryption_is_of_this_machine(wrong: str) -> None:
    key = Secret.parse("sk", literals=True)
    with pytest.raises(ValueError, match="https"):
        ModelClient(Upstream(), GatewayModels(url=wrong, api_key=key))

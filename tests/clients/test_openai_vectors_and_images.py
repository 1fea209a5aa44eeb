"""The official Python SDK on embeddings and images, unmodified, sync and async; and langchain-openai's embeddings."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from langchain_openai import OpenAIEmbeddings
from openai import AsyncOpenAI, OpenAI

from gateway.testing import Reply, RunningGateway
from gateway.testing.openai_dialect import PIXEL

from .scripted import BROKEN_IMAGES, ScriptedUpstream

pytestmark = pytest.mark.clients

TEXTS = ["one two", "three"]
PREVIEW, FINISHED = "image_generation.partial_image", "image_generation.completed"


@pytest.fixture
def client(served: RunningGateway) -> Iterator[OpenAI]:
    """A client as the README makes it."""
    with OpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        yield client


def test_vectors_are_the_same_for_either_encoding(client: OpenAI, scripted: ScriptedUpstream) -> None:
    decoded = client.embeddings.create(model="vectors", input=TEXTS)
    plain = client.embeddings.create(model="vectors", input=TEXTS, encoding_format="float")
    assert [seen.json["encoding_format"] for seen in scripted.seen] == ["base64", "float"]
    assert [item.embedding for item in decoded.data] == [item.embedding for item in plain.data]
    assert [item.index for item in decoded.data] == [0, 1]
    assert decoded.model == "vectors"
    assert decoded.usage.prompt_tokens == decoded.usage.total_tokens == 3


def test_float_vectors_of_the_upstream_are_base64_for_a_client_that_requests_it(
    client: OpenAI, scripted: ScriptedUpstream
) -> None:
    data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
    scripted.enqueue(Reply.json({"object": "list", "data": data, "usage": {"prompt_tokens": 2, "total_tokens": 2}}))
    assert list(client.embeddings.create(model="vectors", input="one two").data[0].embedding) == [0.5, -0.25]


def test_dimensions_and_token_numbers_are_passed_on(client: OpenAI, scripted: ScriptedUpstream) -> None:
    answer = client.embeddings.create(model="vectors", input=[[1, 2], [3]], dimensions=6)
    assert [len(item.embedding) for item in answer.data] == [6, 6]
    assert scripted.seen[0].json["input"] == [[1, 2], [3]]


def test_refused_input_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="vectors", input=["x"] * 2049)
    assert (caught.value.code, caught.value.param) == ("array_above_max_length", "input")


def test_images_come_as_base64_with_usage(client: OpenAI) -> None:
    answer = client.images.generate(model="pictures", prompt="a heron", n=2, size="1024x1024")
    assert answer.data is not None
    assert [image.b64_json for image in answer.data] == [PIXEL, PIXEL]
    assert b64decode(PIXEL).startswith(b"\x89PNG")
    assert answer.size == "1024x1024"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 210


def test_images_are_addresses_if_requested(client: OpenAI) -> None:
    answer = client.images.generate(model="pictures", prompt="a heron", response_format="url")
    assert answer.data is not None
    assert answer.data[0].url == "https://images.invalid/1.png"


def test_stream_of_images_is_typed_events(client: OpenAI) -> None:
    stream: Any = client.images.generate(model="pictures", prompt="a heron", stream=True, partial_images=2)
    events = list(stream)
    assert [event.type for event in events] == [PREVIEW, PREVIEW, FINISHED]
    assert [event.partial_image_index for event in events[:2]] == [0, 1]
    assert events[-1].usage.output_tokens == 100


def test_stream_that_lacks_an_image_raises(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(BROKEN_IMAGES)
    with pytest.raises(openai.APIError) as caught:
        list(client.images.generate(model="pictures", prompt="a heron", stream=True, n=2))
    assert caught.value.code == "upstream_stream_truncated"


async def test_async_client_gets_vectors_images_and_streams(served: RunningGateway) -> None:
    async with AsyncOpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        vectors = await client.embeddings.create(model="vectors", input=TEXTS)
        assert [len(item.embedding) for item in vectors.data] == [4, 4]
        drawn = await client.images.generate(model="pictures", prompt="a heron")
        assert drawn.data is not None
        assert drawn.data[0].b64_json == PIXEL
        stream: Any = await client.images.generate(model="pictures", prompt="a heron", stream=True)
        assert [event.type async for event in stream] == [FINISHED]


def test_langchain_embeds_documents_and_queries(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    options: Any = {"base_url": served.base_url, "api_key": served.api_key, "max_retries": 0}
    vectors = OpenAIEmbeddings(model="vectors", check_embedding_ctx_length=False, **options)
    documents = vectors.embed_documents(TEXTS)
    assert [len(vector) for vector in documents] == [4, 4]
    assert vectors.embed_query(TEXTS[1]) == documents[1]
    assert scripted.seen[0].json["input"] == TEXTS


def test_image_is_edited_whole_and_streamed(client: OpenAI, scripted: ScriptedUpstream) -> None:
    image = b64decode(PIXEL)
    answer = client.images.edit(model="pictures", prompt="a hat", image=image, mask=image, n=2, input_fidelity="high")
    assert answer.data is not None
    assert [one.b64_json for one in answer.data] == [PIXEL, PIXEL]
    assert scripted.seen[0].path == "/v1/images/edits"
    assert scripted.seen[0].body.count(image) == 2
    stream = client.images.edit(model="pictures", prompt="a hat", image=[image, image], stream=True, partial_images=1)
    assert [event.type for event in stream] == ["image_edit.partial_image", "image_edit.completed"]


def test_variation_of_an_image(client: OpenAI, scripted: ScriptedUpstream) -> None:
    with pytest.warns(DeprecationWarning):  # OpenAI has none any more, other servers have
        answer = client.images.create_variation(model="pictures", image=b64decode(PIXEL))
    assert answer.data is not None
    assert answer.data[0].b64_json == PIXEL
    assert scripted.seen[0].path == "/v1/images/variations"

"""Vectors from a provider that may be anybody's: what is refused, and both forms they leave in."""

from __future__ import annotations

import asyncio
import struct
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from gateway.encoders.embeddings import validate, write_list
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.embeddings import EmbeddingAnswer, decode_embedding_request


def request(given: Any = "a", **fields: Any) -> Any:
    return decode_embedding_request(msgspec.json.encode({"model": "m", "input": given, **fields}))


@pytest.mark.parametrize(
    "vector",
    [
        None,
        "0.5",
        7,
        [],
        b"",
        b"abc",
        [None],
        ["0.5"],
        [True],
        [[0.5]],
        {"0": 0.5},
        [float("nan")],
        [float("inf"), float("-inf")],
        [1e39],  # no float32
        struct.pack("<f", float("nan")),
    ],
)
async def test_invalid_vector_is_refused(vector: Any) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        await validate(EmbeddingAnswer([vector]), request())


@pytest.mark.parametrize("answer", [None, [[0.5]], EmbeddingAnswer(None), EmbeddingAnswer("a"), EmbeddingAnswer([])])  # type: ignore[arg-type]
async def test_unusable_answer_is_refused(answer: Any) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        await validate(answer, request())


async def test_vectors_must_have_the_requested_length_or_equal_lengths() -> None:
    await validate(EmbeddingAnswer([[1, 2.5], struct.pack("<2f", 1, 2)]), request(["a", "b"]))
    for vectors, fields in (([[1.0], [1.0, 2.0]], {}), ([[1.0], [1.0]], {"dimensions": 2})):
        with pytest.raises(UpstreamInvalidResponse):
            await validate(EmbeddingAnswer(vectors), request(["a", "b"], **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("vector", [[0.5, -0.25], struct.pack("<2f", 0.5, -0.25)])
async def test_vectors_of_either_encoding_are_written_as_numbers_and_as_base64(vector: Any) -> None:
    plain = msgspec.json.decode(await write_list([vector], base64=False, model="m", tokens=3))
    packed = msgspec.json.decode(await write_list([vector], base64=True, model="m", tokens=3))
    assert plain == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
        "model": "m",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    assert struct.unpack("<2f", b64decode(packed["data"][0].pop("embedding"))) == (0.5, -0.25)


async def test_other_tasks_run_while_many_vectors_are_written() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.ensure_future(others())
    await write_list([[0.5]] * 80, base64=False, model="m", tokens=1)
    task.cancel()
    assert turns >= 8

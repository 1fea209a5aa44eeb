"""The `openai` provider's embeddings: what it sends, and what it makes of every form an answer has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway import EmbeddingAnswer, Target
from gateway.errors import UpstreamError, UpstreamInvalidResponse, UpstreamOverloaded
from gateway.schemas.embeddings import decode_embedding_request
from gateway_providers.openai import OpenAIProvider
from gateway_providers.openai.embeddings import embedding_body, read_embeddings

TARGET = Target("p", "upstream-name", "public-name")


def sent(rename: dict[str, str] | None = None, **fields: Any) -> Any:
    request = decode_embedding_request(msgspec.json.encode({"model": "m", "input": "a", **fields}))
    before = dict(request.fields)
    body = embedding_body(request, TARGET, OpenAIProvider.Options(rename=rename or {}))
    assert request.fields == before
    return msgspec.json.decode(body)


def read(*vectors: Any, **fields: Any) -> EmbeddingAnswer:
    return read_embeddings(msgspec.json.encode({"data": list(vectors), **fields}))


def test_body_is_the_callers_with_the_upstreams_name_of_the_model() -> None:
    assert sent(dimensions=8, encoding_format="base64", input_type="query") == {
        "model": "upstream-name",
        "input": "a",
        "dimensions": 8,
        "encoding_format": "base64",
        "input_type": "query",
    }


def test_fields_are_renamed_for_servers_with_other_field_names() -> None:
    assert sent({"dimensions": "output_dimension"}, dimensions=8)["output_dimension"] == 8


def test_vectors_are_read_from_lists_and_base64() -> None:
    answer = read({"index": 0, "embedding": [1, 0.5]}, {"index": 1, "embedding": "AACAPw=="})
    assert answer.vectors == [[1.0, 0.5], b"\x00\x00\x80?"]


def test_vectors_are_sorted_by_index_or_keep_their_order_without_one() -> None:
    assert read({"index": 1, "embedding": [1]}, {"index": 0, "embedding": [0]}).vectors == [[0.0], [1.0]]
    assert read({"embedding": [1]}, {"embedding": [0]}).vectors == [[1.0], [0.0]]


@pytest.mark.parametrize("indices", [(0, 0), (1, 1), (0, 2), (-1, 0), (1, None)])
def test_indices_that_do_not_match_the_inputs_are_an_invalid_response(indices: tuple[Any, Any]) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        read(*({"index": index, "embedding": [1]} for index in indices))


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 5, "total_tokens": 5}, 5),
        ({"prompt_tokens": 5}, 5),
        (None, None),
        ({}, None),
        ({"prompt_tokens": -1, "total_tokens": -1}, None),
        ({"prompt_tokens": "5"}, None),
        ("many", None),
    ],
)
def test_valid_usage_is_read_and_invalid_usage_is_none(usage: Any, tokens: int | None) -> None:
    found = read({"index": 0, "embedding": [1]}, usage=usage).usage
    assert (found.prompt_tokens if found else None) == tokens


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"data":[]}',
        b'{"data":[{"embedding":null}]}',
        b'{"data":[{"embedding":["a"]}]}',
        b'{"data":[{"embedding":"a*b"}]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_document_without_a_list_of_vectors_is_an_invalid_response(body: bytes) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        read_embeddings(body)


@pytest.mark.parametrize(
    ("error", "kind"),
    [({"message": "overloaded"}, UpstreamOverloaded), ("odd", UpstreamError), ({"code": 500}, UpstreamError)],
)
def test_error_object_inside_an_answer_is_raised(error: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        read({"index": 0, "embedding": [1]}, error=error)

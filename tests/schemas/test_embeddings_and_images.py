"""Requests for vectors and images: every field has a class, null is absence, and nothing forbidden is passed on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from gateway.errors import BadRequest, InvalidValue, MissingParameter, UnknownParameter
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.embeddings import EmbeddingRequest, decode_embedding_request
from gateway.schemas.images import ImageRequest, decode_image_request
from gateway.schemas.request_fields import OWN, RequestFields


def vectors(given: Any = "a", **fields: Any) -> EmbeddingRequest:
    return decode_embedding_request(msgspec.json.encode({"model": "m", "input": given, **fields}))


def pictures(**fields: Any) -> ImageRequest:
    return decode_image_request(msgspec.json.encode({"model": "m", "prompt": "p", **fields}))


@pytest.mark.parametrize("kind", [ChatRequest, EmbeddingRequest, ImageRequest])
def test_every_field_has_a_class_and_every_class_has_a_field(kind: type[RequestFields]) -> None:
    assert set(kind.field_classes) == set(kind.__struct_fields__) - OWN


@pytest.mark.parametrize(
    ("given", "inputs", "tokens"),
    [
        ("a", ["a"], False),
        (["a", "b"], ["a", "b"], False),
        ([1, 2], [[1, 2]], True),
        ([[1, 2], [3]], [[1, 2], [3]], True),
    ],
)
def test_every_form_of_input_has_one_entry_per_vector(given: Any, inputs: Any, tokens: bool) -> None:
    request = vectors(given)
    assert request.inputs == inputs
    assert request.is_tokens is tokens


def test_null_equals_absence() -> None:
    assert vectors(dimensions=None, encoding_format=None, user=None).demands() == frozenset()
    names = set(ImageRequest.field_classes) - {"prompt", "model"}
    request = pictures(**dict.fromkeys(names))
    assert request.demands() == frozenset()
    assert (request.count, request.format, request.exact_size, request.exact_quality) == (1, "png", "", "")


def test_fields_with_default_values_require_no_support() -> None:
    usual = {"n": 1, "size": "auto", "quality": "auto", "background": "auto", "output_format": "png"}
    assert pictures(**usual, output_compression=100).demands() == frozenset()
    assert pictures(n=2, size="1x1").demands() == {"n", "size"}


@pytest.mark.parametrize("make", [vectors, pictures])
def test_addresses_and_credentials_are_removed_and_named(make: Any) -> None:
    request = make(api_base="http://evil", extra={"headers": {"a": 1}, "fine": 1}, odd=1)
    assert request.dropped == ("api_base", "extra.headers")
    assert request.extra == ("extra", "odd")
    assert msgspec.json.decode(request.fields["extra"]) == {"fine": 1}
    with pytest.raises(UnknownParameter):
        request.refuse_unknown()


def test_address_inside_a_known_field_is_removed() -> None:
    request = pictures(output_format="svg", svg={"model": "m", "api_key": "sk-evil"})
    assert request.dropped == ("svg.api_key",)
    assert b"evil" not in bytes(request.fields["svg"])


@pytest.mark.parametrize("make", [vectors, pictures])
def test_field_named_like_an_internal_attribute_is_unknown(make: Any) -> None:
    request = make(fields=1, extra={"a": 1}, dropped="x")
    assert set(request.extra) == {"fields", "extra", "dropped"}
    assert request.fields["fields"] == Raw(b"1")


def test_image_request_without_a_model_takes_the_default_or_is_refused() -> None:
    body = b'{"prompt":"p"}'
    assert decode_image_request(body, default_model="d").model == "d"
    with pytest.raises(MissingParameter) as caught:
        decode_image_request(body)
    assert caught.value.param == "model"


def test_large_input_is_accepted_and_other_large_fields_are_refused() -> None:
    assert len(vectors("x" * (2 << 20)).inputs[0]) == 2 << 20
    with pytest.raises(InvalidValue) as caught:
        vectors(user="x" * (2 << 20))
    assert caught.value.param == "user"


@pytest.mark.parametrize("body", [b"", b"[]", b'"a"', b"{", b'{"input":"\xff"}', b'{"a":' * 5000])
def test_body_that_is_not_a_json_object_is_invalid_json(body: bytes) -> None:
    for decode in (decode_embedding_request, decode_image_request):
        with pytest.raises(BadRequest) as caught:
            decode(body)
        assert caught.value.code == "invalid_json"

"""The decoder serves any endpoint's Struct, not only chat's."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta, Raw

from gateway.errors import BadRequest
from gateway.schemas.validation import BodyDecoder


class Embed(msgspec.Struct, kw_only=True):
    model: str
    input: Annotated[list[Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]], Meta(max_length=3)]
    form: Literal["float", "base64"] | None = msgspec.field(default=None, name="encoding_format")
    dimensions: Annotated[int, Meta(ge=1)] | None = None


DECODER = BodyDecoder(Embed, large_fields=frozenset({"input"}))


def refused(body: bytes) -> tuple[str | None, str | None]:
    with pytest.raises(BadRequest) as caught:
        DECODER.decode(body)
    return caught.value.code, caught.value.param


def test_a_valid_body_gives_the_typed_request_and_the_raw_fields():
    request, fields = DECODER.decode(b'{"model":"m","input":[[1,2],[3]],"encoding_format":"base64","x":null}')
    assert (request.input, request.form) == ([[1, 2], [3]], "base64")
    assert {name: bytes(raw) for name, raw in fields.items()} == {
        "model": b'"m"', "input": b"[[1,2],[3]]", "encoding_format": b'"base64"', "x": b"null",
    }  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "param"), [
    (b'"input":[[1],[]]', "empty_array", "input[1]"),
    (b'"input":[[1],[2,-3]]', "integer_below_min_value", "input[1][1]"),
    (b'"input":[[1],[2],[3],[4]]', "array_above_max_length", "input"),
    (b'"input":[[1],"a"]', "invalid_type", "input[1]"),
    (b'"input":[[1]],"encoding_format":"hex"', "invalid_value", "encoding_format"),
    (b'"input":[[1]],"dimensions":0', "integer_below_min_value", "dimensions"),
    (b'"dimensions":1', "missing_required_parameter", "input"),
])  # fmt: skip
def test_params_are_exact_for_any_struct(fields, code, param):
    assert refused(b'{"model":"m",' + fields + b"}") == (code, param)


def test_invalid_json_after_an_invalid_value_is_invalid_json():
    assert refused(b'{"model":5,"input":[[1]]') == ("invalid_json", None)
    assert refused(b'{"model":5,"input":[[1]],"x":tru}') == ("invalid_json", None)


def test_only_large_fields_may_be_large():
    request, _ = DECODER.decode(b'{"model":"m","input":[[%b]]}' % b",".join([b"1234567890"] * 190_000))
    assert len(request.input[0]) == 190_000
    assert refused(b'{"model":"%b","input":[[1]]}' % (b"m" * 2_000_000)) == ("invalid_value", "model")
    assert refused(b'{"model":"m","input":[[1]],"x":"%b"}' % (b"m" * 2_000_000)) == ("invalid_value", None)


def test_values_too_many_to_name_get_msgspecs_message_and_the_same_path():
    many = b",".join([b"1"] * 190_000)
    assert refused(b'{"model":"m","input":[[%b],[2,"x"]]}' % many) == ("invalid_type", "input[1][1]")
    assert refused(b'{"model":"m","input":[[%b],[1],[1],[1]]}' % many) == ("array_above_max_length", "input")


def test_raw_fields_keep_the_sent_values_after_the_body_is_freed():
    fields = DECODER.decode(bytes(bytearray(b'{"model":"m","input":[[1]],"x": {"a" : 1} }')))[1]
    assert fields["x"] == Raw(b'{"a" : 1}')

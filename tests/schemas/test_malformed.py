"""Ten thousand broken bodies, and hypothesis's own: always one of the wire's 400s, never another exception."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gateway.errors import BadRequest
from gateway.schemas import validation
from gateway.schemas.chat_request import ChatRequest, decode_chat_request

from .malformed import GOOD, TYPED_PATHS, WAYS, good_body, malformed_bodies

pytestmark = pytest.mark.slow

CODES = {
    "invalid_json", "missing_required_parameter", "invalid_type", "invalid_value", "decimal_above_max_value",
    "decimal_below_min_value", "integer_above_max_value", "integer_below_min_value", "empty_array",
    "array_above_max_length", "empty_string", "string_above_max_length", "unsupported_parameter",
}  # fmt: skip


def refusal(body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        decode_chat_request(body)
    return caught.value


def check(error: BadRequest) -> None:
    """It is a row of the wire's table, it can be written, and it says something of bounded length."""
    assert error.code in CODES
    assert 10 < len(error.message) <= 2000
    assert (error.param is None) == (error.code == "invalid_json") or error.message.startswith("The unknown fields")
    assert len(error.param or "") < 300
    assert json.loads(error.body())["error"]["message"] == error.message


def test_the_body_to_be_malformed_is_valid_before():
    for body in (good_body(), good_body(ascii_only=True)):
        assert decode_chat_request(body).max_tokens == 16


def test_ten_thousand_malformed_bodies_are_all_refused():
    started = time.process_time()
    for body in malformed_bodies(10_000):
        check(refusal(body))
    assert time.process_time() - started < 15


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_kind_of_malformed_body_gives_its_code(way):
    expected = {
        "wrong_type": {"invalid_type", "invalid_value", "missing_required_parameter"}
        | {code for code in CODES if "m_value" in code or "max_value" in code or "min_value" in code}
        | {"empty_string", "string_above_max_length"},
        "out_of_range": {code for code in CODES if "max_value" in code or "min_value" in code}
        | {"invalid_json", "invalid_type"},
        "missing": {"missing_required_parameter"},
        "contradiction": CODES - {"invalid_json"},
    }.get(way.__name__, {"invalid_json"})
    chance = random.Random(7)
    found = {refusal(way(chance)).code for _ in range(100)}
    assert found <= expected
    assert found


def test_the_same_seed_gives_the_same_bodies():
    assert list(malformed_bodies(50)) == list(malformed_bodies(50))
    assert list(malformed_bodies(50)) != list(malformed_bodies(50, seed=2))


def replace(document: Any, path: list[str | int], value: Any) -> Any:
    copy = json.loads(json.dumps(document))
    holder = copy
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return copy


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just(10**40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FIELD_NAMES = st.sampled_from([*ChatRequest.__struct_fields__, "headers", "x"])
FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def assert_decodes_or_refuses(body: bytes) -> None:
    try:
        assert isinstance(decode_chat_request(body), ChatRequest)
    except BadRequest as error:
        check(error)


@FUZZ
@given(path=st.sampled_from(TYPED_PATHS), value=ANY_JSON)
def test_any_value_at_any_position_decodes_or_is_refused(path, value):
    assert_decodes_or_refuses(json.dumps(replace(GOOD, path, value)).encode("utf-8", "surrogatepass"))


@FUZZ
@given(fields=st.dictionaries(FIELD_NAMES, ANY_JSON, max_size=3))
def test_any_field_with_any_value_decodes_or_is_refused(fields):
    assert_decodes_or_refuses(json.dumps({**GOOD, **fields}).encode())


@FUZZ
@given(at=st.integers(0, len(good_body())), junk=st.binary(min_size=1, max_size=6), cut=st.integers(0, 6))
def test_any_bytes_anywhere_decode_or_are_refused(at, junk, cut):
    body = good_body()
    assert_decodes_or_refuses(body[:at] + junk + body[at + cut :])


@FUZZ
@given(path=st.sampled_from(TYPED_PATHS), value=ANY_JSON)
def test_first_fault_finds_every_error_that_msgspec_finds(path, value):
    """The fallback to msgspec's own words is for dense bodies only: on small ones the walk must not disagree."""
    body = json.dumps(replace(GOOD, path, value)).encode()
    assume(b"Infinity" not in body)  # which json.dumps writes, and which is no JSON
    try:
        decoded = msgspec.json.decode(body, type=ChatRequest)
    except msgspec.ValidationError:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(validation, "_by_msgspec", lambda message, _: pytest.fail(f"only msgspec found: {message}"))
            check(refusal(body))
    else:
        assert decoded.model

"""Lone surrogates in JSON text become U+FFFD; everything else stays in its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidJSON
from gateway.schemas.large_json import LARGE, PIECE, examined
from gateway.schemas.request_surrogates import AT_ONCE, Replacing, without_surrogates

#: Parts of a JSON string: what may stand around surrogates, and surrogates in both cases.
PARTS = st.sampled_from(
    [
        "a",
        "é",
        "🙂",
        r"\n",
        r"\\",
        r"\"",
        r"\u0041",
        r"\ud83d",
        r"\uD83D",
        r"\ude42",
        r"\uDE42",
        r"\ud83d\ude42",
        r"\udbff",
    ]
)
STRINGS = st.lists(PARTS, max_size=12).map("".join)


def whole(value: object) -> object:
    """The value with U+FFFD for each lone surrogate, as Python's codecs see it."""
    if isinstance(value, dict):
        return {whole(name): whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    if not isinstance(value, str):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@given(st.lists(STRINGS, min_size=1, max_size=4))
def test_lone_halves_are_replaced_and_pairs_stay(strings: list[str]) -> None:
    text = ('{"x": [' + ", ".join(f'"{one}"' for one in strings) + "]}").encode()
    found = without_surrogates(text)
    assert json.loads(found) == whole(json.loads(text))
    assert len(found) == len(text)
    assert (found is text) == (json.loads(text) == whole(json.loads(text)))


@pytest.mark.parametrize(
    "text", [rb'{"a": "\\ud83d"}', rb'{"a": "\\\\ud83d"}', rb'{"a": "\ud83d\ude42"}', rb'{"a": "\ud8"}', b"{}"]
)
def test_text_without_lone_halves_is_the_same_object(text: bytes) -> None:
    assert without_surrogates(text) is text


def test_many_halves_are_replaced_in_steps() -> None:
    text = rb'{"a": "%b"}' % (rb"\ud83d" * (3 * AT_ONCE))
    replacing = Replacing(text)
    assert len(list(replacing.steps())) == 3
    assert json.loads(replacing.result) == {"a": "\ufffd" * (3 * AT_ONCE)}


@pytest.mark.parametrize("shift", range(-8, 3))
def test_half_at_the_border_of_two_pieces_of_a_large_text_is_replaced(shift: int) -> None:
    start = b'{"a": "'
    text = start + b"x" * (PIECE - len(start) + shift) + rb"\ud83d" + b"x" * LARGE + b'"}'
    found = examined(text)
    assert found.content == text.replace(rb"\ud83d", rb"\ufffd")
    assert found.fields is not None


def test_keys_of_a_large_text_that_become_equal_are_refused() -> None:
    text = rb'{"\ud83d": 1, "\ud83e": 2, "a": "%b"}' % (b"x" * LARGE)
    with pytest.raises(InvalidJSON, match="more than once"):
        examined(text)

"""Keys are counted and compared in the text of a body, also of a large one that is read in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BadRequest, InvalidJSON, InvalidValue
from gateway.schemas import large_json
from gateway.schemas.duplicate_keys import key_names, most_keys
from gateway.schemas.large_json import LARGE, LONGEST_KEY, MOST_OBJECTS, MOST_VALUES, SHORT, examined
from tests.quick import examples


class Pairs(list[tuple[str, Any]]):
    """An object that may have a key twice."""


TEXTS = st.text(st.sampled_from('ab":\\{}[], \n\té€') | st.characters(codec="utf-8"), max_size=SHORT + 8)
NAMES = st.sampled_from(["a", "b", 'a"', "a\\", "é", ":", "a" * (SHORT + 1)]) | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(NAMES, inner), max_size=4).map(Pairs),
    max_leaves=20,
)


def written(value: Any, *, ascii_only: bool, space: str) -> str:
    """JSON text."""
    if isinstance(value, Pairs):
        pairs = (
            f"{json.dumps(name, ensure_ascii=ascii_only)}{space}:{space}"
            f"{written(inner, ascii_only=ascii_only, space=space)}"
            for name, inner in value
        )
        return "{" + f"{space},".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + f",{space}".join(written(one, ascii_only=ascii_only, space=space) for one in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def names_of(value: Any) -> list[list[str]]:
    """The keys of every object."""
    found = [[name for name, _ in value]] if isinstance(value, Pairs) else []
    children = [inner for _, inner in value] if isinstance(value, Pairs) else value if isinstance(value, list) else []
    for child in children:
        found += names_of(child)
    return found


@settings(max_examples=examples(300), deadline=None)
@given(VALUES, st.booleans(), st.sampled_from(["", " ", "\n\t "]), st.integers(1, 40))
def test_keys_are_the_same_in_one_piece_and_in_many(value: Any, ascii_only: bool, space: str, piece: int) -> None:
    text = written(value, ascii_only=ascii_only, space=space).encode()
    objects = names_of(value)
    assert most_keys(text) >= sum(map(len, objects))
    repeated = any(len(set(names)) < len(names) for names in objects)
    before, large_json.PIECE = large_json.PIECE, piece  # type: ignore[misc]
    before_part, large_json.PART = large_json.PART, piece + 20  # type: ignore[misc]
    try:
        for names in (key_names, lambda text: examined(text).names):
            if repeated:
                with pytest.raises(InvalidJSON):
                    names(text)
            else:
                assert names(text) == {name for names in objects for name in names}
    finally:
        large_json.PIECE = before  # type: ignore[misc]
        large_json.PART = before_part  # type: ignore[misc]


@pytest.mark.parametrize("where", [b'"messages":%b', b'"tools":[{"x":%b}]', b'"x":{"y":{"z":%b}}'])
def test_keys_of_a_large_body_are_read_in_small_parts(where: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def read(text: bytes) -> set[str]:
        sizes.append(len(text))
        return key_names(text)

    monkeypatch.setattr(large_json, "key_names", read)
    array = b"[%b]" % b",".join([b'{"role":"user","content":"some words"}'] * 19_000)
    assert {"role", "content", "model"} <= examined(b'{"model":"m",%b}' % (where % array)).names
    assert max(sizes) < 2 * large_json.PART
    with pytest.raises(InvalidJSON, match="'role' more than once"):
        examined(b'{"model":"m",%b}' % (where % (array[:-1] + b',{"role":1,"role":2}]')))
    with pytest.raises(InvalidJSON, match="'model' more than once"):
        examined(b'{"model":"m",%b,"model":"n"}' % (where % array))


def body(content: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % content


def test_commas_in_a_text_are_no_values() -> None:
    assert examined(body(b"a, b: [c], {d} " * 200_000)).names == {"model", "messages", "role", "content"}


@pytest.mark.parametrize("value", [b"1", b'""', b"[]", b"{}"])
def test_large_body_with_too_many_values_is_refused(value: bytes) -> None:
    text = b'{"x":[%b]}' % b",".join([value] * (MOST_VALUES + 1))
    with pytest.raises(InvalidValue):
        examined(text)


def test_large_body_may_have_twenty_thousand_objects_and_no_more() -> None:
    def text(objects: int) -> bytes:
        return b'{"x":"{%b","y":[%b]}' % (b"{" * LARGE, b",".join([b'{"z":1}'] * (objects - 1)))

    assert examined(text(MOST_OBJECTS)).names == {"x", "y", "z"}
    with pytest.raises(InvalidValue, match=str(MOST_OBJECTS)):
        examined(text(MOST_OBJECTS + 1))


def test_long_key_of_a_large_body_is_refused() -> None:
    for size in (LONGEST_KEY, 100_000, 300_000):
        text = b'{"%b":1,"y":"%b"}' % (b"k" * size, b"x" * LARGE)
        if size == LONGEST_KEY:
            assert examined(text).names == {"k" * size, "y"}
        else:
            with pytest.raises(InvalidValue):
                examined(text)


@pytest.mark.parametrize("at", [0, 131_071, 131_072, 500_000])
def test_invalid_text_in_a_large_body_is_named_with_its_place(at: int) -> None:
    text = body(b"x" * at + "é€".encode() + b"\xff" + b"x" * LARGE)
    with pytest.raises(InvalidJSON, match=rf"byte {text.index(0xFF)}\b"):
        examined(text)
    with pytest.raises(InvalidJSON, match="UTF-8"):
        examined(body(b"x" * LARGE)[:-1] + b"\xc3")


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    for text in (b"[" * 100_000, b'{"a":' * 50_000):
        with pytest.raises(BadRequest):
            key_names(text + b"1" * LARGE)

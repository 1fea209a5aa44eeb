"""Fragments of tool calls in every form that servers give them make the calls that were cut into them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from gateway import FunctionCall, ToolCallDelta
from gateway_providers.openai.call_numbers import MAX_CHECKS, CallNumbers

Call = tuple[str, list[str]]  # the name, and the pieces of the arguments

FORMS = (
    "openai",
    "one index",
    "no index",
    "no index, ids",
    "whole",
    "new ids",
    "repeated",
    "repeated name",
    "late name",
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(st.sampled_from('{}":,a\\ '), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('{}":a'), max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
documents = st.dictionaries(st.text(st.sampled_from('{}":ab'), max_size=3), values, max_size=3)


@st.composite
def calls(draw: st.DrawFn) -> list[Call]:
    made = []
    for _ in range(draw(st.integers(1, 3))):
        text = json.dumps(draw(documents), separators=draw(st.sampled_from([(",", ":"), (", ", ": ")])))
        cuts = sorted(draw(st.sets(st.integers(1, len(text) - 1), max_size=4)))
        pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
        made.append((draw(st.sampled_from(["tide", "wind"])), pieces))
    return made


def fragment(index: Any, id: str, name: str, text: str) -> ToolCallDelta:
    function = FunctionCall(name or UNSET, text)
    return ToolCallDelta(UNSET if index is None else index, id or UNSET, "function", function)


def fragments(form: str, made: list[Call]) -> Iterator[ToolCallDelta]:
    for number, (name, pieces) in enumerate(made):
        id, index = f"call_{number}", number
        if form == "whole":
            yield fragment(0, "", name, "".join(pieces))
            continue
        if form == "late name":
            yield fragment(index, id, "", "")
        for position, piece in enumerate(pieces):
            first, last = position == 0, position == len(pieces) - 1
            if form == "one index":
                yield fragment(0, id if first else "", name if first else "", piece)
            elif form == "no index":
                yield fragment(None, id if first else "", name if first else "", piece)
            elif form == "no index, ids":
                yield fragment(None, id, name if first else "", piece)
            elif form == "new ids":
                yield fragment(index, f"{id}_{position}", name if first else "", piece)
            elif form == "repeated name":
                yield fragment(index, id, name, piece)
            elif form == "late name":
                yield fragment(index, "", name if last else "", piece)
            else:
                yield fragment(index, id if first else "", name if first else "", piece)
        if form == "repeated":
            yield fragment(index, id, name, "".join(pieces))


def put_together(fragments: Iterator[ToolCallDelta]) -> list[tuple[str, str]]:
    numbers = CallNumbers()
    found: dict[int, list[str]] = {}
    for one in fragments:
        for part in numbers.numbered([one]):
            assert isinstance(part.index, int) and part.function
            call = found.setdefault(part.index, ["", ""])
            call[0] = call[0] or part.function.name or ""
            call[1] += part.function.arguments or ""
    assert list(found) == list(range(len(found)))
    assert not numbers.nameless()
    return [(name, text) for name, text in found.values()]


@given(st.sampled_from(FORMS), calls())
@example("openai", [("tide", ['{"', '{":1}'])])
@example("openai", [("tide", ['{"a":', '{"a":1}}'])])
def test_calls_in_any_form_are_what_was_cut(form: str, made: list[Call]) -> None:
    assert put_together(fragments(form, made)) == [(name, "".join(pieces)) for name, pieces in made]


def test_arguments_that_never_become_whole_are_read_a_bounded_number_of_times() -> None:
    numbers = CallNumbers()
    for number in range(2000):
        numbers.numbered([fragment(0, f"call_{number}", "tide", "{}" if number else '{"a":')])
    assert [call.checks for call in numbers._calls] == [MAX_CHECKS]

"""Lines with NUL, lone surrogates, U+FFFF and marks of direction in texts are booked and imported as others are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from gateway.errors.attempt_answer import AttemptAnswer
from tests.history.importing import Importing
from tests.ledger.records import record_of
from tests.strange_texts import STRANGE
from tests.world import OpenWorld

NO_TEXT = ("bytes of a surrogate", "byte that is no UTF-8")
TEXTS = {name: json.loads(text.decode()) for name, text in STRANGE.items() if name not in NO_TEXT}
#: The texts of a call's record.
FIELDS = ("provider", "outcome", "served_model", "upstream_model", "session", "endpoint", "service_tier")


def records(text: str) -> list[Any]:
    """A record with the text in each of its fields."""
    plain = record_of(7)
    found = [structs.replace(plain, **{name: text}) for name in FIELDS]
    found.append(structs.replace(plain, tags={"team": text}))
    found.append(structs.replace(plain, tags={text: "x"}))
    found.append(structs.replace(plain, answers=(AttemptAnswer(text, text, text),)))
    return found


@pytest.mark.parametrize("text", TEXTS)
async def test_call_with_a_strange_text_is_settled_and_imported(
    world: OpenWorld, importing: Callable[..., Importing], text: str
) -> None:
    async with world() as w:
        key = await w.caller("acme", budget=10**9)
        for record in records(TEXTS[text]):
            hold = await w.admit(key)
            w.ledger.book(hold, record)
        await w.ledger.drain()
        one = importing(w)
        await one.all("acme")
        await one.same()
        assert len([line for line in one.lines() if line.kind == "use"]) == len(records(TEXTS[text]))


@pytest.mark.parametrize("text", TEXTS)
async def test_note_with_a_strange_text_is_imported(
    world: OpenWorld, importing: Callable[..., Importing], text: str
) -> None:
    async with world() as w:
        await w.caller("acme", budget=10**9)
        await w.ledger.credit("acme", 5, note=TEXTS[text])
        one = importing(w)
        await one.all("acme")
        await one.same()

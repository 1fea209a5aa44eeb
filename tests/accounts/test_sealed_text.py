"""Texts that clients keep for the gateway open for their account only, and not after they were changed."""

from __future__ import annotations

import pytest

from gateway.accounts.pepper import Peppers
from gateway.accounts.sealed_text import NONCE, SealedText
from gateway.schemas.responses.compaction import PREFIX

OLD, NEW = b"o" * 32, b"n" * 32
TEXT = "Fix the test in ä.py"


def sealed(pepper: bytes = OLD, text: str = TEXT) -> str:
    return SealedText(Peppers(pepper)).seal(text, "acme")


@pytest.mark.parametrize(
    ("peppers", "is_open"),
    [(Peppers(OLD), True), (Peppers(NEW, OLD), True), (Peppers(NEW), False)],
    ids=["same", "during-a-rotation", "after-it"],
)
def test_text_opens_until_its_pepper_is_gone(peppers: Peppers, is_open: bool) -> None:
    assert SealedText(peppers).open(sealed(), "acme") == (TEXT if is_open else None)


def test_text_of_another_account_does_not_open() -> None:
    assert SealedText(Peppers(OLD)).open(sealed(), "acme2") is None


def test_text_that_was_changed_anywhere_does_not_open() -> None:
    subject, whole = SealedText(Peppers(OLD)), sealed()
    for at in range(len(PREFIX), len(whole)):
        other = "A" if whole[at] != "A" else "B"
        changed = whole[:at] + other + whole[at + 1 :]
        assert subject.open(changed, "acme") in (None, TEXT), at
        # The last characters of base64 may have bits that mean nothing.
        assert subject.open(changed, "acme") is None or at >= len(whole) - 4


@pytest.mark.parametrize("text", ["", PREFIX, PREFIX + "A", PREFIX + "A" * NONCE, PREFIX + "é", "x" * 100])
def test_text_that_is_none_does_not_open(text: str) -> None:
    assert SealedText(Peppers(OLD)).open(text, "acme") is None


def test_same_text_is_never_sealed_the_same_way() -> None:
    assert sealed() != sealed()


def test_lone_surrogate_is_replaced() -> None:
    assert SealedText(Peppers(OLD)).open(sealed(text="a\ud83d"), "acme") == "a?"

"""A text joins another one only where it is proved to fit: whole, or not at all."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gateway.routing.seam import BLANK, NotJoined, Prefilled, Restart, Seam

TEXTS = (
    "Once upon a time there was a gateway that lost its provider in the middle of a sentence, and nobody noticed.",
    "def total(rows):\n    found = 0\n    for row in rows:\n        if row.valid:\n            found += row.value\n"
    "    return found\n\n\nclass Report:\n    def __init__(self, rows):\n        self.rows = rows\n",
    "# Results\n\n| name | calls |\n|---|--:|\n| first | 12 |\n| second | 7 |\n\n- one\n- two\n"
    "  - three\n\n**Done.**\n",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Dann gehen sie nach Hause und schlafen.",
    "昔々あるところに、おじいさんとおばあさんが住んでいました。おじいさんは山へ芝刈りに行きました。",
    "Жила-была старушка у самого синего моря. Она ждала письма, а письмо всё не шло.",
    "كان يا ما كان في قديم الزمان ملك عادل يحب شعبه.",
    "Emoji 👩‍👩‍👧‍👦 and flags 🇩🇪🇫🇷 and hearts ❤️ live in one line 🎉, then text goes on.\n\nSo it ends 🙂.",
    '{"name": "value", "list": [1, 2, 3], "inner": {"a": true, "b": null}}',
    "ha ha ha ha said the bird, and the other bird said ho ho ho ho until the sun was gone behind the hills",
    "    indented from its first line\n\tand with a tab\n\n\n\nand four line ends, then trailing space   \nend",
)
TALK = ("Sure, here is the rest: ", "Of course! ", "I apologize for the interruption. ", "当然，", "Конечно! ")
FORMS = ("goes on", "without space", "overlaps", "begins again", "differs", "talks", "stops short", "says nothing")


def pieces(text: str, rng: random.Random) -> list[str]:
    """The text cut as tokens are: anywhere."""
    found, longest = [], rng.choice((1, 4, 12, 400))
    while text:
        size = rng.randint(1, longest)
        found.append(text[:size])
        text = text[size:]
    return found


def joined(seam: Seam, delivered: str, answer: list[str]) -> str | None:
    """What the caller gets; None for an honest cut."""
    text, known = delivered, False
    try:
        for piece in answer:
            new = piece if known else seam.feed(piece)
            if new is not None:
                known = True
                text += new
        return text if known else text + seam.end()
    except NotJoined:
        assert not known, "nothing of it was passed on"
        return None


def answer_of(form: str, text: str, cut: int, rng: random.Random) -> tuple[str, str | None]:
    """What the second target sends, and what the whole answer would be; None if nothing may be joined."""
    delivered = text[:cut]
    if form == "goes on":
        return text[len(delivered.rstrip()) :], text
    if form == "without space":
        return text[cut:].lstrip() if delivered[-1].isspace() else text[cut:], text
    if form == "overlaps":
        return text[cut - rng.randint(1, cut) :], text
    if form == "begins again":
        return text, text
    if form == "talks":
        return rng.choice(TALK) + rng.choice((text, text[cut:])), None
    if form == "stops short":
        return text[: rng.randint(1, cut)], None
    if form == "says nothing":
        return "", None
    begin = len(text) - len(text.lstrip())  # where the first character differs, it may as well go on
    place = rng.randint(begin + 1, len(text) - 1)
    other = text[:place] + rng.choice([char for char in "aZ 字\n9" if char != text[place]]) + text[place + 1 :]
    return other, other if place >= cut else None


def check(seed: int) -> tuple[str, str, bool]:
    """One case; the form of the answer, the way of asking, and whether it was joined."""
    rng = random.Random(seed)
    text, form, way = rng.choice(TEXTS), rng.choice(FORMS), rng.choice(("prefill", "again"))
    cut = rng.randint(1, len(text))
    delivered = text[:cut]
    if way == "prefill" and not delivered.strip():
        return form, way, False  # nothing to go on with
    answer, whole = answer_of(form, text, cut, rng)
    seam: Seam = Prefilled(delivered) if way == "prefill" else Restart(delivered)
    got = joined(seam, delivered, pieces(answer, rng))
    if way == "again":
        allowed = {None, answer if answer.startswith(delivered) else None}  # the answer of one target, whole
    elif form == "without space" and whole is not None and delivered[-1].isspace():
        allowed = {None, whole, delivered + answer}  # white space that goes on after the cut is not sent again
    elif form == "stops short":
        allowed = {None, delivered if answer == delivered else None}
    else:
        allowed = {None, whole}
    assert got in allowed, (seed, form, way, delivered, answer, got)
    return form, way, got is not None


def checked(first: int, count: int) -> Counter[tuple[str, str, bool]]:
    return Counter(check(seed) for seed in range(first, first + count))


def test_an_answer_is_whole_or_cut_whatever_the_second_target_sends() -> None:
    found = checked(0, 4_000)
    for form, way, least in (
        ("goes on", "prefill", 0.75),
        ("begins again", "prefill", 0.75),
        ("begins again", "again", 1.0),
        ("overlaps", "prefill", 0.4),
    ):
        count, missed = found[form, way, True], found[form, way, False]
        assert count >= least * (count + missed), (form, way, count, missed)


@pytest.mark.slow
def test_a_hundred_thousand_answers_are_whole_or_cut() -> None:
    checked(10_000, 100_000)


@pytest.mark.parametrize(
    ("delivered", "answer", "whole"),
    [
        ("Once upon a time", " there was an end.", "Once upon a time there was an end."),
        ("Once upon a ", " time", "Once upon a time"),
        ("Once upon a ", "time", "Once upon a time"),
        ("Once upon a\n", "\n\nTime", "Once upon a\n\nTime"),
        ("Once upon a time", "a time there was", "Once upon a time there was"),
        ("Once upon a ti", "Once upon a time", "Once upon a time"),
        ("Once upon a time, in", " in the end", None),
        ("The house. ", " The mouse", "The house. The mouse"),
        ("hel", "lo", None),
        ("ha ", "ha ha", None),
        ("Once upon a time", "Sure, I go on", None),
        ("Once upon a time", " Sure, I go on", None),
        ("Once upon a time", "Twice upon", None),
        ("Once upon a time", "Once there was", None),
        ("Once upon a time", " Once upon a time there was", None),
        ("Once upon a time", "", None),
        ("Once upon a time", "  ", None),
        ("Once upon a time", "Once", None),
    ],
)
def test_text_of_a_target_that_was_asked_to_go_on(delivered: str, answer: str, whole: str | None) -> None:
    for parts in ([answer], list(answer)):
        assert joined(Prefilled(delivered), delivered, parts) == whole


def test_a_long_answer_that_begins_again_takes_time_in_proportion_to_its_length() -> None:
    text = "".join(f"{number} and " for number in range(100_000))
    for seam in (Restart(text), Prefilled(text)):
        answer = [text[at : at + 4] for at in range(0, len(text), 4)]
        assert joined(seam, text, [*answer, "the end"]) == text + "the end"


def test_a_text_that_repeats_itself_without_an_end_is_not_joined() -> None:
    text = "a" * 100_000
    assert joined(Prefilled(text), text, [*"a" * 2_000, "b"]) is None


@pytest.mark.parametrize("end", [None, "the rest."])
@pytest.mark.parametrize("size", [1, 7, 2_000])
def test_white_space_is_held_up_to_a_bound_and_then_not_joined(size: int, end: str | None) -> None:
    seam, held = Prefilled("Once upon a time"), 0
    with pytest.raises(NotJoined):
        while held <= 2 * BLANK:
            assert seam.feed((" " * size) + (end or "" if held + size > BLANK else "")) is None
            held += size
    assert held <= BLANK, "it is decided by what came, however it is cut into chunks"


@pytest.mark.parametrize("size", [1, 50, 5_000])
def test_text_after_much_white_space_is_joined_as_soon_as_it_comes(size: int) -> None:
    delivered, rest = "| name |", "\n" + " " * (BLANK - 1) + "| value | and all the rest of it"
    seam, passed = Prefilled(delivered), ""
    for at in range(0, len(rest), size):
        new = rest[at : at + size] if passed else seam.feed(rest[at : at + size])
        passed += new or ""
        assert passed or at + size < BLANK + 12, "nothing of the text is held longer than to see how it begins"
    assert passed == rest

"""Amounts, numbers and times as pages show them; paths and messages that come from a browser."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.console import elements
from gateway.console.cookies import read_flash, write_flash
from gateway.console.paths import own_path
from gateway.console.snippets import snippets


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (7_000, "0.000007"),
        (0, "0.00"),
        (1_234_567_500_000_000, "1,234,567.50"),
        (-2_000_000_001, "−2.000000001"),
        ("0.000000000000000007", "0.000000000000000007"),
    ],
)
def test_amount_has_every_digit_and_two_decimals(amount: int | str, text: str) -> None:
    assert elements.amount_text(amount) == text


def test_small_share_is_never_shown_as_none() -> None:
    shares = [elements.percent_text(part, whole) for part, whole in ((0, 5), (1, 1_000_000), (1, 3), (1, 1), (0, 0))]
    assert shares == ["0 %", "< 0.01 %", "33.33 %", "100 %", "–"]


def test_loss_is_a_negative_share_and_there_is_none_of_nothing() -> None:
    pairs = ((-1, 3), (-1, 1_000_000), (-1, 10_000), (-5, 0), (1, -5))
    assert [elements.percent_text(part, whole) for part, whole in pairs] == [
        "−33.33 %",
        "> −0.01 %",
        "−0.01 %",
        "–",
        "–",
    ]


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [(0, ("call",), "0 calls"), (1, ("call",), "1 call"), (1, ("call was", "calls were"), "1 call was"),
     (1234, ("call was", "calls were"), "1,234 calls were")],
)  # fmt: skip
def test_one_thing_is_counted_in_the_singular(number: int, nouns: tuple[str, ...], text: str) -> None:
    assert elements.counted_text(number, *nouns) == text


def test_time_is_machine_readable_with_utc_on_hover() -> None:
    html = elements.time_element(datetime(2026, 11, 23, 14, 5, 9, tzinfo=UTC))
    assert 'datetime="2026-11-23T14:05:09Z"' in html and 'title="2026-11-23 14:05:09 UTC"' in html
    assert ">2026-11-23 14:05:09 UTC<" in html
    assert elements.time_element(None, none="<never>") == "&lt;never&gt;"


def test_message_is_only_read_for_the_session_that_it_was_written_for() -> None:
    value = write_flash("session", "done é")
    assert read_flash("session", value) == "done é"
    assert [read_flash("session", other) for other in ("", "x", value[:-4], write_flash("other", "hi"))] == [""] * 4


@pytest.mark.parametrize("text", ["//a", "/\\a", "a", "", "/a b", "/a\n", "http://a", "/ä", "/" + "a" * 3000])
def test_path_of_another_site_becomes_the_first_page(text: str) -> None:
    assert own_path(text) == "/" and own_path("/a?b=c#d") == "/a?b=c#d"


def test_programs_quote_what_they_contain() -> None:
    odd = 'it\'s "odd" $(reboot)'
    curl, python, node = snippets("https://x/v1", "sk-1", odd)
    assert "'\"'\"'" in curl.text and "$(reboot)" in curl.text
    compile(python.text.replace("client = ", "client = str or "), "snippet", "exec")
    assert '"it\'s \\"odd\\" $(reboot)"' in python.text and '\\"odd\\"' in node.text
    assert [one.language for one in snippets("https://x/v1", "sk-1", "")] == ["curl"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "–"),
        (12, "12 ms"),
        (1_530, "1.53 s"),
        (125_000, "2 min 5 s"),
        (3_600_000, "1 h 0 min"),
        (154_800_000, "43 h 0 min"),
    ],
)
def test_duration_has_the_units_that_people_use(milliseconds: int | None, text: str) -> None:
    assert elements.duration_text(milliseconds) == text

"""The search leads to the section about the words, shows where they are, and is bounded."""

from __future__ import annotations

import re
import time

import pytest

from gateway.manual.headings import Heading, Section, first_paragraph, plain, sections_of
from gateway.manual.manual import Manual
from gateway.manual.search_index import (
    MOST_CHARACTERS,
    MOST_HITS,
    MOST_READ,
    MOST_WORDS,
    SearchIndex,
    excerpt,
    query_words,
)

MANUAL = Manual(lambda _: "")


def first(query: str, count: int = 1) -> list[tuple[str, str]]:
    """The pages and titles of the best sections."""
    return [(hit.section.page, hit.section.heading.title) for hit in MANUAL.search(query).best[:count]]


@pytest.mark.holds("console.md#documentation-2")
@pytest.mark.parametrize(
    ("query", "page", "title"),
    [
        ("public_url", "configuration", "[console]"),
        ("signup_credit", "configuration", "[console]"),
        ("invalid_api_key", "errors", "Key, permission, limits, money"),
        ("gateway keys rotate", "cli/keys", "gateway keys rotate"),
        ("how do I rotate a key", "cli/keys", "gateway keys rotate"),
        ("tls certificate", "operations/tls", "Client certificates"),
        ("Backup RESTORE", "operations/backup", "Backup and restore"),
        ("rolling resta", "operations/upgrade", "Rolling restart"),
    ],
)
def test_setting_error_and_command_lead_to_their_section(query: str, page: str, title: str) -> None:
    assert (page, title) in first(query, 2)


def section(title: str, text: str, page: str = "p") -> Section:
    """A section of a page."""
    return Section(page, "Page", Heading(2, title, title.lower()), text)


def titles(index: SearchIndex, query: str) -> list[str]:
    """The titles of what is found."""
    return [hit.section.heading.title for hit in index.search(query).best]


INDEX = SearchIndex(
    [
        section("Body", "a credential that is refused, and other words of a text"),
        section("Credential", "other words"),
        section("Third", "credentials of a provider"),
        section("Other", "first_token_ms is a time"),
    ]
)


def test_words_of_titles_come_before_words_of_texts_and_exact_ones_before_longer_ones() -> None:
    assert titles(INDEX, "credential") == ["Credential", "Body", "Third"]


def test_only_sections_with_all_words_are_found_if_there_is_one() -> None:
    assert titles(INDEX, "credential refused") == ["Body"]
    assert titles(INDEX, "refused nonsense provider") == ["Body", "Third"]


def test_part_of_a_name_and_its_beginning_are_found() -> None:
    assert titles(INDEX, "token") == titles(INDEX, "first_tok") == titles(INDEX, "FIRST_TOKEN_MS") == ["Other"]


def test_words_beside_each_other_come_first() -> None:
    far = section("Far", "open the door of the circuit; open a circuit, of a circuit")
    near = section("Near", "a circuit open for long, with more words after it than the other one")
    assert titles(SearchIndex([far, near]), "circuit open") == ["Near", "Far"]


@pytest.mark.parametrize("query", ["", " ", "?!* -", "\x00", "ß" * 10])
def test_query_without_known_words_finds_nothing(query: str) -> None:
    assert MANUAL.search(query).best == []


def test_query_is_cut_to_few_words() -> None:
    assert len(query_words(" ".join(f"w{n}" for n in range(100)))) == MOST_WORDS
    assert query_words("a" * 10_000) == ["a" * MOST_CHARACTERS]
    assert query_words("the The the-the") == ["the"]


def test_search_for_the_commonest_words_takes_a_bounded_time_and_shows_few_sections() -> None:
    began = time.thread_time()
    found = MANUAL.search("a the of is and to in that")
    assert time.thread_time() - began < 1.0
    assert len(found.best) == MOST_HITS < found.total


def test_search_reads_a_bounded_part_of_a_large_index() -> None:
    index = SearchIndex([section(f"T{n}", f"common{n % 50} word") for n in range(3 * MOST_READ)])
    assert index.search("common").total == MOST_READ
    assert index.search("word common1").total <= MOST_READ


def test_excerpt_is_around_the_words_marked_and_escaped() -> None:
    text = f"{'before ' * 60}<b> a circuit opens & stays {'after ' * 60}"
    html = excerpt(text, ["circuit"])
    assert "&lt;b&gt; a <mark>circuit</mark> opens &amp; stays" in html
    assert html.startswith("… before") and html.endswith("after …")
    assert len(html) < 400
    assert excerpt("short text", ["nothing"]) == "short text"
    assert excerpt("", ["x"]) == ""


def test_every_excerpt_is_text_with_marks_only() -> None:
    for query in ("curl", "html script", "price", "&lt;"):
        for hit in MANUAL.search(query).best:
            assert "<" not in re.sub(r"</?mark>", "", hit.excerpt)


def test_markdown_becomes_plain_text() -> None:
    text = "- **bold** [`x`](errors.md) and `a*b | c`\n| a | b |\n|---|--:|\n| `k` | v \\| w |\n> quote"
    assert plain(text) == "bold x and a*b | c a · b k · v | w quote"


def test_block_of_code_keeps_its_asterisks_and_marks() -> None:
    text = '# T\n\nBefore.\n\n```toml\n[models."openrouter/*"]\n- a `*b*` c\n# no heading\n```\n\n**After**.\n'
    (section,) = sections_of("t", text)
    assert section.text == 'Before. [models."openrouter/*"] - a `*b*` c # no heading After.'


def test_section_has_the_text_of_code_but_no_heading_of_it() -> None:
    sections = sections_of("p", "# T\n\nabout\n\n```sh\n# no heading\ngateway serve\n```\n\n## S ##\n\n| `key` | x |\n")
    assert [one.heading.title for one in sections] == ["T", "S"]
    assert sections[0].text == "about # no heading gateway serve"
    assert sections[1].defined == ("key",) and sections[1].page_title == "T"


def test_first_paragraph_is_prose_before_the_next_heading() -> None:
    assert first_paragraph("# T\n\n![x](y)\n\nOne **two**.\n\n## S\n") == "One two."
    assert first_paragraph("# T\n\n| a |\n|---|\n\n## S\n\nthree\n") == ""


def test_pages_of_the_navigation_have_their_titles() -> None:
    named = {page.name: page for group in MANUAL.groups() for page in group.pages}
    assert named["index"].title == "Quickstart" and named["operations/tls"].title == "TLS"
    assert not [page for page in named.values() if page.about.startswith("This page is made from")]
    assert sum(1 for page in named.values() if page.about) > 40

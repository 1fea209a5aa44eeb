"""Pages become HTML whose links, pictures and headings work in the console, and that needs no style or script."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from html import unescape

import pytest

from gateway.manual.files import pictures, read_groups, read_page
from gateway.manual.headings import sections_of
from gateway.manual.manual import Manual
from gateway.manual.page_html import Page, page_html

PAGES = [entry.name for group in read_groups() for entry in group.pages]
PICTURES = pictures()
MANUAL = Manual(lambda name: f"static/0/{name}" if name in PICTURES else "")


@cache
def made(name: str) -> Page:
    """The page of a name."""
    page = MANUAL.page(name)
    assert page is not None, name
    return page


def html_of(text: str, name: str = "operations/start") -> str:
    """The HTML of a text as that page."""
    return page_html(name, text, lambda path: f"static/0/{path}" if path in PICTURES else "").html


def test_headings_have_anchors_and_a_title_that_comes_again_a_number() -> None:
    page = page_html("x", "# Title\n\n## `[server]` and *more*\n\n## Again\n\n## Again\n\n### 1. First\n", lambda _: "")
    assert [heading.anchor for heading in page.headings] == ["title", "server-and-more", "again", "again-1", "1-first"]
    assert '<h2 id="again-1" tabindex="-1">' in page.html
    assert '<a class="anchor" href="#again-1" aria-label="Link to Again">#</a>' in page.html
    assert (page.title, [one.title for one in page.contents]) == (
        "Title",
        ["[server] and more", "Again", "Again", "1. First"],
    )


@pytest.mark.parametrize("name", PAGES)
def test_headings_are_those_that_the_search_leads_to(name: str) -> None:
    assert list(made(name).headings) == [section.heading for section in sections_of(name, read_page(name))]


@pytest.mark.parametrize(
    ("name", "link", "address"),
    [
        ("operations/start", "[a](tls.md#limits)", "../operations/tls#limits"),
        ("operations/start", "[a](../../docs/cli/keys.md)", "../cli/keys"),
        ("configuration", "[a](operations/tls.md)", "operations/tls"),
        ("operations/start", "[a](../../README.md)", "../index"),
        ("index", "[a](docs/prices.md#audio)", "prices#audio"),
        ("index", "[a](SECURITY.md)", "SECURITY"),
        ("index", "[a](#run-it)", "#run-it"),
        ("index", "[a](https://example.com/prices)", "https://example.com/prices"),
    ],
)
def test_link_has_its_address_in_the_console(name: str, link: str, address: str) -> None:
    assert f'<a href="{address}">a</a>' in html_of(f"# T\n\n{link}\n", name)


@pytest.mark.parametrize(
    "target", ["../../conf/alerts.yaml", "../../RELEASING.md#x", "../../CONTRIBUTING.md", "../../conf"]
)
def test_link_to_a_file_that_is_no_page_is_its_text(target: str) -> None:
    html = html_of(f"# T\n\nSee [the `file`]({target}) there.\n")
    assert "<a" not in html
    assert "the <code>file</code></span> there." in html
    assert f'title="{posixpath.normpath(f"docs/operations/{target}").partition("#")[0]}, a file of' in html


def test_drawing_is_a_static_file_and_a_picture_of_the_console_is_left_out() -> None:
    html = html_of("# T\n\n![Growth](../img/growth.svg)\n\n![Home](../pictures/home-light.webp)\n")
    assert '<img src="../../static/0/docs/img/growth.svg" alt="Growth" loading="lazy"' in html
    assert html.count("<img") == 1
    assert html.count("<p>") == 1


def test_comments_and_parts_for_elsewhere_are_left_out_and_lists_stay_tight() -> None:
    items = "- one\n  <!-- claim: one-1 -->\n- two <!-- claim: one-2 -->"
    text = f"# T\n\n{items}\n\n<!-- elsewhere -->\n## E\n\nx\n<!-- end of elsewhere -->\n"
    html = html_of(text)
    assert "<!--" not in html and "claim" not in html and "E</h2>" not in html
    assert "<li>one</li>" in html and "<li>two</li>" in html


def test_html_of_a_page_is_text() -> None:
    html = html_of('# T\n\n<script>alert(1)</script> <b onclick="x">\n\n[a](javascript:alert(1))\n')
    assert "<script" not in html and "<b" not in html and "href" not in html


def test_tables_and_blocks_of_code_are_regions_with_different_names() -> None:
    html = html_of("# T\n\n## S\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```toml\na = '<1>'\n```\n\n```\nb\n```\n")
    assert re.findall(r'role="region" aria-label="([^"]*)"', html) == ["Table: S, 1", "Code: S, 1", "Code: S, 2"]
    assert "<code>a = '&lt;1&gt;'\n</code>" in html and '<td class="num">2</td>' in html


@pytest.mark.parametrize("name", PAGES)
def test_page_needs_no_style_or_script_of_its_own(name: str) -> None:
    """The Content-Security-Policy of the console would forbid it."""
    tags = " ".join(re.findall(r"<[a-z][^>]*>", made(name).html))
    assert not re.search(r"<(?:script|style|iframe|object|form)\b|\s(?:style|on\w+)=", tags)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_page_and_a_heading_or_out(name: str) -> None:
    html = made(name).html
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    for target in map(unescape, re.findall(r'<a (?:class="anchor" )?href="([^"]*)"', html)):
        if re.match(r"https?://", target):
            continue
        address, _, anchor = target.partition("#")
        page = posixpath.normpath(posixpath.join(posixpath.dirname(name), address)) if address else name
        assert page in PAGES, target
        assert not anchor or anchor in {heading.anchor for heading in made(page).headings}, target


def test_pages_are_small_but_the_list_of_all_attributes() -> None:
    """A page of the console is at most 100,000 bytes with its files."""
    assert {name for name in PAGES if len(made(name).html) > 70_000} == {"plugin-attributes"}


def test_most_pages_have_links_to_others() -> None:
    assert sum(1 for name in PAGES if 'href="' in made(name).html) > 40


def test_page_is_made_once_and_an_unknown_one_is_none() -> None:
    assert MANUAL.page("prices") is MANUAL.page("prices")
    for name in ("nothing", "", "../README", "claims", "docs/prices", "operations", "prices.md"):
        assert (MANUAL.page(name) is None) == (name != "operations"), name

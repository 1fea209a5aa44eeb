"""`/docs` is the documentation of the version, for all visitors or for people who are signed in, with a search."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urljoin

import pytest

from gateway.console.route import PageRoute, PageRouter
from gateway.console.table import ROUTES
from gateway.manual.manual import Manual
from gateway.version import __version__
from tests.console.client import Shown
from tests.console.conftest import OpenConsole

HELPED = [route for route in ROUTES if route.help]
MANUAL = Manual(lambda _: "")


def main(shown: Shown) -> str:
    """The HTML of the content."""
    return shown.html.partition('<main id="main"')[2]


@pytest.mark.holds("console.md#documentation-1")
async def test_visitor_reads_the_documentation_of_the_version(console: OpenConsole) -> None:
    async with console() as c:
        stranger = await c.browser()
        assert 'href="/docs">Documentation</a>' in (await stranger.get("/sign-in")).html
        contents = await stranger.get("/docs")
        assert f"Of version {__version__}" in contents.text
        pages = re.findall(r'<a href="(/docs/[^"]+)"', main(contents))
        assert len(pages) > 50
        page = await stranger.get("/docs/operations/tls")
        assert '<h2 id="client-certificates"' in page.html and 'href="../operations/network#connections"' in page.html
        assert 'href="#client-certificates">Client certificates</a></li>' in page.html
        assert 'aria-current="page">TLS</a>' in page.html


async def test_closed_documentation_is_for_people_who_are_signed_in(console: OpenConsole) -> None:
    async with console(public_docs=False) as c:
        stranger, person = await c.browser(), await c.as_("ann")
        for path in ("/docs", "/docs/search?q=x", "/docs/runbook", "/docs/operations/tls"):
            assert (await stranger.ask("GET", path)).location.startswith("/sign-in?next=%2Fdocs")
            assert (await person.ask("GET", path)).status == 200
        assert "/docs" not in (await stranger.get("/sign-in")).html


async def test_every_page_of_the_contents_opens_and_its_files_and_links_exist(console: OpenConsole) -> None:
    async with console(root_path="/gw") as c:
        stranger, router = await c.browser(), PageRouter(ROUTES)
        for path in re.findall(r'<a href="/gw(/docs/[^"]+)"', main(await stranger.get("/docs"))):
            html = main(await stranger.get(path))
            for target in re.findall(r'(?:href|src)="([^"#:]+)', html):
                place = urljoin(f"http://x/gw{path}", target).removeprefix("http://x")
                assert place.startswith("/gw/"), (path, target)
                if "/static/" in place:
                    assert (await stranger.ask("GET", place.removeprefix("/gw"))).status == 200, (path, target)
                else:
                    router.search("GET", place.removeprefix("/gw").partition("?")[0])


@pytest.mark.parametrize(
    "path", ["/docs/nothing", "/docs/cli/nothing", "/docs/claims", "/docs/..%2FREADME", "/docs/x/y/z"]
)
async def test_unknown_page_is_not_found(console: OpenConsole, path: str) -> None:
    async with console() as c:
        shown = await (await c.browser()).ask("GET", path)
        assert (shown.status, "There is no such page" in shown.text) == (404, True)


@pytest.mark.holds("console.md#documentation-2")
async def test_search_leads_to_sections_without_a_script(console: OpenConsole) -> None:
    async with console() as c:
        stranger = await c.browser()
        assert re.search(r'<form method="get" action="/docs/search"[^>]*>', (await stranger.get("/docs/prices")).html)
        shown = await stranger.get("/docs/search?q=public_url")
        assert re.findall(r'<ol class="hits"><li><a href="([^"]+)"', main(shown)) == ["/docs/configuration#console"]
        assert "<mark>public_url</mark>" in shown.html
        nothing = await stranger.get("/docs/search?q=nonsenseword")
        assert "No section has these words" in nothing.text
        assert "Write words" in (await stranger.get("/docs/search")).text


async def test_query_is_shown_as_text_and_cut(console: OpenConsole) -> None:
    async with console() as c:
        stranger = await c.browser()
        shown = await stranger.get("/docs/search?q=%3Cscript%3Ealert(1)%3C/script%3E")
        assert "<script>alert" not in shown.html and 'value="&lt;script&gt;' in shown.html
        long = await stranger.get(f"/docs/search?q={'price+' * 300}")
        assert len(long.found(r'name="q" value="([^"]*)"')) == 200


async def test_first_pages_that_are_opened_at_once_all_come(
    console: OpenConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages and the index are made by the first of them."""
    from gateway.console.pages import manual

    fresh = Manual(lambda _: "")
    monkeypatch.setattr(manual, "own_manual", lambda: fresh)
    async with console() as c:
        browser = await c.browser()
        paths = ["/docs", "/docs/prices", "/docs/prices", "/docs/search?q=price", "/docs/cli/keys"] * 4
        shown = await asyncio.gather(*(browser.ask("GET", path) for path in paths))
        assert [one.status for one in shown] == [200] * len(paths)
        assert len({one.body for one in shown if one.url == "/docs/prices"}) == 1


@pytest.mark.parametrize("route", HELPED, ids=lambda route: route.path)
def test_help_leads_to_a_section_that_exists(route: PageRoute) -> None:
    name, _, anchor = route.help.partition("#")
    page = MANUAL.page(name)
    assert page is not None
    assert not anchor or anchor in {heading.anchor for heading in page.headings}
    assert route.method == "GET"


async def test_pages_link_to_the_section_about_them(console: OpenConsole) -> None:
    assert len(HELPED) >= 30
    async with console() as c:
        operator = await c.as_("root", role="operator", acme="owner")
        for path, section in {
            "/site/models": "routing#health",
            "/accounts/acme/usage": "console#usage-and-overview",
            "/accounts/acme/keys": "console#api-keys",
            "/profile": "people#signing-in",
        }.items():
            assert f'href="/docs/{section}">Help</a>' in (await operator.get(path)).html
        assert ">Help</a>" not in (await operator.get("/docs")).html


async def test_page_of_the_documentation_keeps_the_policy_of_the_console(console: OpenConsole) -> None:
    async with console() as c:
        shown = await (await c.browser()).get("/docs/configuration")
        assert "default-src 'self'" in shown.headers["Content-Security-Policy"]
        assert "unsafe" not in shown.headers["Content-Security-Policy"]
        assert not re.findall(r"<[^>]* (?:style|on\w+)=|<script(?! src=)", shown.html)

"""`/docs`: the documentation of the installed version, with a search. It is text, so its pages need no store."""

from __future__ import annotations

from functools import cache

from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.static_files import own_files
from gateway.console.visit import Visit
from gateway.errors import UnknownURL
from gateway.manual.files import pictures
from gateway.manual.manual import Manual
from gateway.manual.search_index import MOST_CHARACTERS
from gateway.version import __version__
from gateway.web.work_threads import PAGES

PATH = "/docs"


@cache
def own_manual() -> Manual:
    """The documentation; the threads of pages use it."""
    known = pictures()
    return Manual(lambda name: own_files().path(name).removeprefix("/") if name in known else "")


async def contents(visit: Visit) -> Reply:
    return View("docs.html", "Documentation", {"groups": await PAGES.run(own_manual().groups), "version": __version__})


async def page(visit: Visit, page: str) -> Reply:
    return await _page(page)


async def page_in(visit: Visit, folder: str, topic: str) -> Reply:
    return await _page(f"{folder}/{topic}")


async def _page(name: str) -> Reply:
    found = await PAGES.run(own_manual().page, name)
    if found is None:
        raise UnknownURL
    groups = await PAGES.run(own_manual().groups)
    return View("docs_page.html", found.title, {"page": found, "groups": groups})


async def search(visit: Visit) -> Reply:
    query = visit.query("q")[:MOST_CHARACTERS]
    values = {"search": query, "found": await PAGES.run(own_manual().search, query)}
    return View("docs_search.html", "Search the documentation", values)


def is_open(visit: Visit) -> bool:
    """Whether the visitor may read it."""
    return visit.may_read_manual


ROUTES = (
    PageRoute(
        method="GET",
        path=PATH,
        audience="public",
        function=contents,
        is_open=is_open,
        menu="Documentation",
        group="Help",
    ),
    PageRoute(method="GET", path=f"{PATH}/search", audience="public", function=search, is_open=is_open),
    PageRoute(method="GET", path=f"{PATH}/{{page}}", audience="public", function=page, is_open=is_open),
    PageRoute(method="GET", path=f"{PATH}/{{folder}}/{{topic}}", audience="public", function=page_in, is_open=is_open),
)

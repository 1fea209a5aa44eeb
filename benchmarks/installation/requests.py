"""The requests of a walk: every GET of the two route tables whose path can be filled in, and further queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from benchmarks.installation.size import LARGE, user_id
from gateway.admin_api.route import PREFIX
from gateway.admin_api.table import ROUTES as ADMIN_ROUTES
from gateway.console.table import ROUTES as PAGES
from gateway.web.path_table import PARAMETER

#: Queries that show more than the first page of a route, by its path.
QUERIES: dict[str, list[str]] = {
    "/site/accounts": ["?q=a00000"],
    "/site/users": ["?q=00000"],
    "/accounts/{account}/members": ["?q=00000"],
    f"{PREFIX}/usage": ["?group_by=account", "?group_by=key"],
}
#: Queries without which a route refuses the request.
REQUIRED = {"explanations_explain": "?model=mock00000", "calls_show": f"?account={LARGE}"}
#: What a person of many accounts opens, besides the operator.
WIDE_PAGES = ("/", f"/accounts/{LARGE}", f"/accounts/{LARGE}/keys", "/profile")
#: Searches for something that is not there.
UNKNOWN = ["/site/accounts/acmee", f"{PREFIX}/accounts/acmee", f"{PREFIX}/keys/key_nothing"]
#: Lists and searches: the requests of `--few`.
FEW = frozenset(
    {
        "/site/accounts",
        "/site/accounts?q=a00000",
        "/site/users?q=00000",
        "/accounts/{account}/keys",
        "/accounts/{account}/members",
        "/accounts/{account}/members?q=00000",
        "/accounts/{account}/usage",
        "/site/calls",
        "/site/reports",
        f"{PREFIX}/accounts",
        f"{PREFIX}/accounts/{{account}}/keys",
        f"{PREFIX}/keys",
        *UNKNOWN,
    }
)


class Request(Struct, frozen=True):
    """A GET. `name` is its path without values."""

    kind: str  # page, route
    name: str
    path: str


def wide_requests() -> Iterator[Request]:
    """The pages of a person who has many accounts."""
    return (Request("page", f"{path}, person of many accounts", path) for path in WIDE_PAGES)


def values_of(key_id: str, request_id: str) -> dict[str, str]:
    """What the parameters of paths are filled with."""
    return {
        "account": LARGE,
        "key": key_id,
        "user": user_id(0),
        "request_id": request_id,
        "model": "mock00000",
        "month": datetime.now(UTC).strftime("%Y-%m"),
    }


def requests(values: Mapping[str, str]) -> Iterator[Request]:
    """All of them. A path with a parameter that has no value, such as that of an invitation, is left out."""
    paths = [("page", route.path, "") for route in PAGES if route.method == "GET"]
    paths += [
        ("route", PREFIX + route.path, REQUIRED.get(route.operation_id, ""))
        for route in ADMIN_ROUTES
        if route.method == "GET"
    ]
    for kind, path, required in paths:
        if set(PARAMETER.findall(path)) <= values.keys():
            for query in [required, *QUERIES.get(path, [])]:
                yield Request(kind, path + query, path.format(**values) + query)
    for path in UNKNOWN:
        yield Request("route" if path.startswith(PREFIX) else "page", path, path)

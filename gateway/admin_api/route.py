"""One route of the admin API, and the search for the route of a request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from gateway.admin_api.access import Access
from gateway.admin_api.documents import Error
from gateway.errors import MethodNotAllowed, UnknownURL
from gateway.web.path_table import PARAMETER, PathTable
from gateway.web.places import Limit

PREFIX = "/admin/v1"
JSON = "application/json"
Function = Callable[..., Awaitable[Any]]


class AdminRoute(Struct, frozen=True, kw_only=True):
    """One entry of the table.

    `function` is called with a `Call`, and by keyword with each parameter of the path, with `query` and with `body`, as
    far as the route has them. It returns the answer's document. `answer` is its schema, `error` that of an error.
    """

    method: str
    path: str  # behind PREFIX, with {name} for a parameter
    access: Access
    summary: str  # one line, for the OpenAPI document
    function: Function
    answer: Any
    error: Any = Error
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    status: int = 200
    media_type: str = JSON  # of the answer; the function of another one, or of long JSON, returns its bytes in pieces
    max_body: int = 2**20  # bytes
    moves_money: bool = False  # the header Idempotency-Key is required
    writes_store: bool = False  # the answer waits until the store's disk has the change
    ends_token: bool = False  # the request may end the token itself: its answer is sent although the token has ended
    limit: Limit | None = None  # how many requests a token has under way; a GET with a limit ends if its client leaves

    @property
    def parameters(self) -> list[str]:
        """The parameters of the path, in order."""
        return PARAMETER.findall(self.path)

    @property
    def ends_with_client(self) -> bool:
        """Whether the work ends if the client leaves."""
        return self.limit is not None and self.method == "GET"

    @property
    def operation_id(self) -> str:
        """The name of the operation in the OpenAPI document: the module's resource and the function's name."""
        return f"{self.function.__module__.rpartition('.')[2]}_{self.function.__name__.rstrip('_')}"

    def problem(self) -> str:
        """What is wrong with the entry; empty for a sound one."""
        expected = [*self.parameters, *(["query"] if self.query else []), *(["body"] if self.body else [])]
        taken = list(inspect.signature(self.function).parameters)[1:]
        if sorted(expected) != sorted(taken):
            return f"the function takes {taken}, the route has {expected}"
        if self.access.target in ("account", "key") and self.access.target not in self.parameters:
            return f"the access rule needs {{{self.access.target}}} in the path"
        if self.limit is not None and self.access.public:
            return "a limit is of a token, and the route needs none"
        return ""


class Found(Struct, frozen=True):
    """The route of a request, and the parameters of its path, percent-decoded."""

    route: AdminRoute
    parameters: Mapping[str, str]


class AdminRouter:
    """Finds routes by method and path."""

    def __init__(self, routes: Iterable[AdminRoute]) -> None:
        self._table: PathTable[AdminRoute] = PathTable()
        for route in routes:
            if problem := route.problem():
                raise ValueError(f"{route.method} {route.path}: {problem}")
            self._table.add(route.method, PREFIX + route.path, route)

    @property
    def routes(self) -> list[AdminRoute]:
        """All routes, in the order of the table."""
        return self._table.entries()

    def search(self, method: str, path: str) -> Found | MethodNotAllowed | UnknownURL:
        """The route for a request, or the error."""
        try:
            return Found(*self._table.search(method, path))
        except (MethodNotAllowed, UnknownURL) as error:
            return error

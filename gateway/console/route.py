"""One route of the console, and the search for the route of a request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from gateway.console.audience import OF_ACCOUNTS, Audience
from gateway.console.visit import Visit
from gateway.web.path_table import PARAMETER, PathTable
from gateway.web.places import Limit

Function = Callable[..., Awaitable[Any]]
Group = Literal["Overview", "Traffic", "Money", "People", "Models", "System", "Help", "You"]
GROUPS: tuple[Group, ...] = get_args(Group)  # as the navigation has them


class PageRoute(Struct, frozen=True, kw_only=True):
    """One entry of the table.

    `function` is called with the `Visit`, and by keyword with each parameter of the path. It returns a `Reply`. `form`
    is the function of the page with the form whose input a POST gets: it is called again if the input is refused.
    """

    method: Literal["GET", "POST"]
    path: str  # with {name} for a parameter
    audience: Audience
    function: Function
    form: Function | None = None
    is_open: Callable[[Visit], bool] | None = None  # a further condition for the audience, such as a setting
    menu: str = ""  # the name in the navigation; "": the page is not in it
    group: Group | Literal[""] = ""  # of the navigation; "" for pages of an account, which are a group of their own
    help: str = ""  # the page of the documentation that explains this one, and its section, such as `console#reports`
    #: A GET that waits for something else than the store and the database's thread of the pages. It takes no turn, and
    #: is cancelled if the browser leaves; one that changes something in several steps `completes` them.
    waits: bool = False
    waits_if: Callable[[Visit], bool] | None = None  # of a GET that `waits` for some queries only
    completes: bool = False
    always: bool = False  # a POST that ends something, or adds nothing that stays: a person sends any number of them
    limit: Limit | None = None  # of a POST, or of a GET that waits; this one has a limit of its own without it

    @property
    def parameters(self) -> list[str]:
        """The parameters of the path, in order."""
        return PARAMETER.findall(self.path)

    @property
    def writes(self) -> bool:
        """Whether the route may change something: it needs an XSRF token."""
        return self.method == "POST"

    def takes_no_turn(self, visit: Visit) -> bool:
        """Whether the page of this visit waits for something else."""
        return self.waits or (self.waits_if is not None and self.waits_if(visit))

    def problem(self) -> str:
        """What is wrong with the entry; empty for a sound one."""
        for function in (self.function, *([self.form] if self.form else [])):
            taken = list(inspect.signature(function).parameters)[1:]
            if sorted(taken) != sorted(self.parameters):
                return f"the function {function.__name__} takes {taken}, the path has {self.parameters}"
        if self.audience in OF_ACCOUNTS and "account" not in self.parameters:
            return "the audience needs {account} in the path"
        if self.menu and (self.writes or set(self.parameters) - {"account"}):
            return "a page in the navigation is a GET, and about an account or the site"
        if bool(self.group) != bool(self.menu and self.audience not in OF_ACCOUNTS):
            return "a page in the navigation has a group, unless it is about an account"
        if self.limit is not None and not (self.writes or self.waits or self.waits_if):
            return "a page that takes turns has no limit of its own"
        if self.form is not None and not self.writes:
            return "only a POST has a form"
        return ""


class PageRouter:
    """Finds routes by method and path."""

    def __init__(self, routes: Iterable[PageRoute]) -> None:
        self._table: PathTable[PageRoute] = PathTable()
        self.routes = tuple(routes)
        for route in self.routes:
            if problem := route.problem():
                raise ValueError(f"{route.method} {route.path}: {problem}")
            self._table.add(route.method, route.path, route)

    def search(self, method: str, path: str) -> tuple[PageRoute, Mapping[str, str]]:
        """The route and the parameters of a request; MethodNotAllowed, UnknownURL."""
        return self._table.search(method, path)

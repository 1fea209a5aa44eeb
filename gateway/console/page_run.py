"""Runs the function of a page's route: reads take turns, waits have places, and a form needs its XSRF token.

The rights of the person are read again for an answer that took long. What a form has done by then stays done.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import Final

from msgspec import Struct

from gateway.console.admission import Admitted
from gateway.console.playground_runs import MOST_OF_USER
from gateway.console.replies import Redirect, Reply
from gateway.console.route import Function
from gateway.console.site import Site
from gateway.console.visit import Visit
from gateway.console.xsrf import FIELD, HEADER, is_right
from gateway.errors import Forbidden, GatewayError
from gateway.log import gateway_log
from gateway.web.attended import AttendedWork
from gateway.web.late_answers import LATE, require_same
from gateway.web.places import Limit

MOST_WAITS: Final = MOST_OF_USER  # of one person at one route that waits for others
TOO_MANY_WAITS: Final = "You have opened this too many times at once; wait for one of them"
#: Statuses of input that a person can correct: its form is shown again. A form whose own object is not found is not.
CORRECTABLE: Final = frozenset({400, 401, 404, 409, 429})


class RefusedForm(Struct, frozen=True):
    """The page with a form once more, with what was typed and why it was refused."""

    reply: Reply
    error: GatewayError


class PageRun:
    """The run for one request; `attended` ends work whose browser leaves, and `admit_again` reads rights once more."""

    def __init__(
        self,
        site: Site,
        visit: Visit,
        admitted: Admitted,
        attended: AttendedWork,
        admit_again: Callable[[], Awaitable[Admitted | Redirect]],
    ) -> None:
        self._site = site
        self._visit = visit
        self._route = admitted.route
        self._parameters = admitted.parameters
        self._attended = attended
        self._admit_again = admit_again

    async def read(self) -> Reply:
        """Reads take turns. Those that wait for others do not, and writes neither: these wait for hashes and mail."""
        began = monotonic()
        if self._route.takes_no_turn(self._visit):
            reply = await self._wait()
        else:
            async with self._site.turn(self._visit):
                reply = await self._route.function(self._visit, **self._parameters)
        return await self._refuse_late(began) or reply

    async def write(self, headers: Mapping[str, str]) -> Reply | RefusedForm:
        """Apply the form of the visit, if its XSRF token or the one in a header is right."""
        visit, route, began = self._visit, self._route, monotonic()
        if not is_right(visit.anchor, visit.raw(FIELD) or headers.get(HEADER, "")):
            return await self._refuse_token(is_foreign=headers.get("Sec-Fetch-Site") == "cross-site")
        try:
            self._site.changes.count(visit, route)
            with self._place(route.limit):
                reply: Reply = await route.function(visit, **self._parameters)
        except GatewayError as refusal:
            if route.form is None or refusal.status not in CORRECTABLE:
                raise
            return await self._again(route.form, refusal)
        if visit.is_signed_in:
            for condition in await visit.store.unconfirmed():
                gateway_log.warning("a change in the console was made, but %s", condition)
                visit.note(f"The change was made, but {condition}.")
        if isinstance(reply, Redirect):  # it shows nothing, and the person may have signed out
            return reply
        return await self._refuse_late(began) or reply

    async def _wait(self) -> Reply:
        """A person has few waits at a time, and none for an answer that nobody reads; ClientLeft."""
        route = self._route
        work = partial(route.function, self._visit, **self._parameters)
        with self._place(route.limit or Limit(name=route.path, most=MOST_WAITS, refusal=TOO_MANY_WAITS)):
            reply: Reply = await (work() if route.completes else self._attended.run(work))
        return reply

    def _place(self, limit: Limit | None) -> AbstractContextManager[None]:
        """Count what the person has under way; TooManyRequests."""
        return self._site.waits.take(limit, self._visit.actor.name if self._visit.user is not None else "")

    async def _refuse_late(self, began: float) -> Redirect | None:
        """Read the rights again for an answer that took long since they were read. All errors of a refusal."""
        visit = self._visit
        if not visit.is_signed_in or self._route.audience == "public" or monotonic() - began < LATE:
            return None
        before, again = visit.actor, await self._admit_again()
        if isinstance(again, Redirect):
            return again
        require_same(before, visit.actor)
        return None

    async def _refuse_token(self, *, is_foreign: bool) -> Redirect | RefusedForm:
        """A form without the right token changes nothing.

        A form for people who are not signed in is shown again with the right one: another tab has signed in or out. A
        foreign site's is not, because it gets no cookies.
        """
        if self._route.audience != "public" or self._route.form is None or is_foreign:
            raise Forbidden("This form is too old, or it is not from this site. Go back, reload the page, try again")
        return await self._again(
            self._route.form, Forbidden("This form was too old, or another tab signed in or out. Send it again")
        )

    async def _again(self, form: Function, refusal: GatewayError) -> Redirect | RefusedForm:
        """The form once more: it may have waited, and it shows more than was typed, so rights are read again."""
        if ended := await self._refuse_late(-math.inf):
            return ended
        self._visit.error = refusal
        return RefusedForm(await form(self._visit, **self._parameters), refusal)

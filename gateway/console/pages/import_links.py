"""`/site/import/links`: links to sign in for the users of an imported text, shown once as CSV."""

from __future__ import annotations

from functools import partial

from gateway.console.pages.site_imports import PATH, problem_of, sent
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import Forbidden, InvalidValue, NotSignedIn
from gateway.people.many_links import COLUMNS, FoundUser, active_users, emails_in, link_row
from gateway.people.sign_in_links import NewLink
from gateway.reports.csv_file import csv_text

MOST_LINKS = 500  # of a form: until its page is shown, they are in the memory of this process only


async def again(visit: Visit) -> Reply:
    """The form once more."""
    return _page("", [], content=visit.raw("content"))


async def make(visit: Visit) -> Reply:
    """The links. A form that is sent twice at once makes them once: later links would end the earlier ones."""
    await visit.confirm_password()
    kind, content = sent(visit)
    if kind != "users":
        raise InvalidValue("Links to sign in are for users", param="kind")
    emails = emails_in("users.csv", content)
    if len(emails) > MOST_LINKS:
        command = "`gateway users links --from FILE.csv --out LINKS.csv`"
        raise InvalidValue(f"A form makes at most {MOST_LINKS} links. Make more with {command}", param="content")
    return await visit.imports.run((visit.person.id, "links", content), partial(_made, visit, emails))


async def _made(visit: Visit, emails: list[str]) -> Reply:
    people, made = await visit.people(), list[NewLink]()

    async def find(email: str) -> FoundUser:
        user = await people.users.find(visit.actor, email)
        return FoundUser(user.id, user.state)

    try:
        for user_id, email in (await active_users(find, emails)).items():
            made.append(await people.sign_in_links.create(visit.actor, user_id, expected_email=email))
    except (Forbidden, NotSignedIn):
        raise  # the rights have ended
    except Exception as error:
        # Nobody can show the links again: those before the fault must be on the page, whatever the fault is.
        if not made:
            raise
        problem, status = problem_of(error, "links")
        return _page(problem, made, status=status)
    return _page("", made)


def _page(problem: str, made: list[NewLink], *, content: str = "", status: int = 200) -> View:
    values = {
        "problem": problem,
        "made": len(made),
        "links": csv_text(COLUMNS, map(link_row, made)),
        "content": content,
    }
    return View("site_import_links.html", "Links to sign in", values, status=status)


ROUTES = (PageRoute(method="POST", path=f"{PATH}/links", audience="operator", function=make, form=again),)

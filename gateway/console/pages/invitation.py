"""`/invitation`: accepts an invitation. A new person sets a name and a password; a user signs in before, as always.

The page is the same for a new person and for a user who is not signed in: it does not tell who is a user.
"""

from __future__ import annotations

from gateway.console.pages.sign_in import enter, repeated_password
from gateway.console.paths import path_with
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.people.invitations import PATH


async def form(visit: Visit) -> Reply:
    token = visit.query("token") or visit.raw("token")
    people = await visit.people()
    invitation = await people.invitations.find(token)
    is_invited = visit.user is not None and visit.user.email == invitation.email
    values = {
        "token": token,
        "invitation": invitation,
        "is_invited": is_invited,
        "way": await people.invitations.way_of(token, _user_id(visit)) if is_invited else "",
        "has_password": visit.user is not None and visit.user.has_password,
        "sign_in": path_with("/sign-in", next=path_with(PATH, token=token)),
        "providers": people.oidc.providers,
    }
    return View("invitation.html", "Invitation", values)


async def accept(visit: Visit) -> Reply:
    people, token, address = await visit.people(), visit.raw("token"), visit.asked.address
    signed_in = visit.actor if visit.is_signed_in else None
    way = await people.invitations.way_of(token, _user_id(visit))
    if way == "accept":
        await people.invitations.accept(token, address=address, signed_in=signed_in)
        visit.note("The invitation is accepted.")
        return Redirect("/")
    password, name = repeated_password(visit), visit.text("name")
    if way == "confirm":
        await visit.confirm_person()
    user = await people.invitations.accept(
        token, name=name, password=password, address=address, signed_in=signed_in, is_confirmed=way == "confirm"
    )
    visit.note("Welcome. Your password is set.")
    return await enter(visit, await people.sign_in.with_password(user.email, password, visit.client), "/")


def _user_id(visit: Visit) -> str:
    return visit.user.id if visit.user is not None else ""


ROUTES = (
    PageRoute(method="GET", path=PATH, audience="public", function=form),
    PageRoute(method="POST", path=PATH, audience="public", function=accept, form=form),
)

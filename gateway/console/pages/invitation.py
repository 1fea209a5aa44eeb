"""`/invitation`: accepts an invitation. A new user sets a name and a password; another one signs in as always."""

from __future__ import annotations

from gateway.admin.invitations import PATH
from gateway.console.pages.sign_in import enter, repeated_password
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import Route
from gateway.console.visit import Visit


async def form(visit: Visit) -> Reply:
    token = visit.query("token") or visit.raw("token")
    invitations = (await visit.people()).invitations
    values = {
        "token": token,
        "invitation": await invitations.find(token),
        "is_new": not await invitations.is_for_user(token),
        "providers": (await visit.people()).oidc.providers,
    }
    return View("invitation.html", "Invitation", values)


async def accept(visit: Visit) -> Reply:
    people, token = await visit.people(), visit.raw("token")
    address = visit.asked.address
    if await people.invitations.is_for_user(token):
        user = await people.invitations.accept(token, address=address)
        visit.note("The invitation is accepted.")
        is_self = visit.user is not None and visit.user.id == user.id
        return Redirect("/" if is_self else "/sign-in")
    password = repeated_password(visit)
    user = await people.invitations.accept(token, name=visit.text("name"), password=password, address=address)
    visit.note("Welcome. Your password is set.")
    return await enter(visit, await people.sign_in.with_password(user.email, password, visit.client), "/")


ROUTES = (
    Route(method="GET", path=PATH, audience="public", function=form),
    Route(method="POST", path=PATH, audience="public", function=accept, form=form),
)

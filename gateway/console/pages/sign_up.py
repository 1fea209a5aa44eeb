"""`/sign-up`: new people ask for a link by e-mail, and set a password with it."""

from __future__ import annotations

from gateway.console.pages.profile import PROFILE
from gateway.console.pages.sign_in import enter, repeated_password
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.people.sign_ups import PATH as CONFIRM

SIGN_UP = "/sign-up"


async def form(visit: Visit) -> Reply:
    people = await visit.people()
    values = {"is_open": people.sign_ups.is_open, "is_sent": False, "providers": people.oidc.providers}
    return View("sign_up.html", "Sign up", values)


async def request(visit: Visit) -> Reply:
    people = await visit.people()
    await people.sign_ups.request(visit.text("email"), address=visit.asked.address)
    return View("sign_up.html", "Sign up", {"is_open": True, "is_sent": True, "providers": []})


async def confirm_form(visit: Visit) -> Reply:
    token = visit.query("token") or visit.raw("token")
    email = await (await visit.people()).sign_ups.email_of(token)
    return View("sign_up_confirm.html", "Welcome", {"token": token, "email": email})


async def confirm(visit: Visit) -> Reply:
    people, password = await visit.people(), repeated_password(visit)
    token, address = visit.raw("token"), visit.asked.address
    user = await people.sign_ups.confirm(token, name=visit.text("name"), password=password, address=address)
    visit.note("Welcome. Your password is set.")
    path = PROFILE if await people.invitations.of_person(user.actor(address)) else "/"
    return await enter(visit, await people.sign_in.with_password(user.email, password, visit.client), path)


ROUTES = (
    PageRoute(method="GET", path=SIGN_UP, audience="public", function=form),
    PageRoute(method="POST", path=SIGN_UP, audience="public", function=request, form=form),
    PageRoute(method="GET", path=CONFIRM, audience="public", function=confirm_form),
    PageRoute(method="POST", path=CONFIRM, audience="public", function=confirm, form=confirm_form),
)

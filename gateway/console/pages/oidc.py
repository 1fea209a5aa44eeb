"""`/sign-in/oidc`: signing in by an identity provider: the way to it, and its answer."""

from __future__ import annotations

from gateway.admin.oidc.flows import Callback
from gateway.admin.oidc.sign_in import Connected, PasswordNeeded
from gateway.console import cookies as names
from gateway.console.pages.sign_in import enter
from gateway.console.pages.sign_in import form as sign_in_form
from gateway.console.paths import own_path
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import Route
from gateway.console.visit import Visit
from gateway.errors import InvalidValue, NotFound, SignInFailed

OIDC = "/sign-in/oidc"
PASSWORD = f"{OIDC}/password"
AGE = 600  # seconds that the browser may be away
PROFILE = "/profile"


async def begin(visit: Visit) -> Reply:
    path = own_path(visit.text("next"))
    return await leave_for(visit, path=path, invitation=visit.raw("invitation"))


async def leave_for(visit: Visit, *, path: str, invitation: str = "", connects: str = "") -> Reply:
    """Send the browser to the provider that the form names.

    A page with a link and a refresh, because the policy of the pages lets a form lead to this site only.
    """
    oidc = (await visit.people()).oidc
    address = visit.asked.address
    try:
        away = await oidc.begin(visit.text("provider"), address, path=path, invitation=invitation, connects=connects)
    except NotFound:
        raise InvalidValue("There is no such sign-in service", param="provider") from None
    visit.cookies.set(names.OIDC, away.browser, max_age=AGE)
    return View("oidc_leave.html", "Sign in", {"address": away.url, "label": away.label})


async def callback(visit: Visit, provider: str) -> Reply:
    came = Callback(visit.query("state"), visit.query("code"), visit.query("error"), visit.query("iss"))
    oidc = (await visit.people()).oidc
    flow = await oidc.take_up(provider, came, visit.cookies.get(names.OIDC))
    visit.cookies.delete(names.OIDC)  # only now: the link of somebody else ends no sign-in that is under way
    user_id = visit.person.id if visit.is_signed_in else ""
    reply = await oidc.finish(flow, came, visit.client, signed_in=user_id)
    if isinstance(reply, Connected):
        visit.note(f"You can sign in with {reply.label} now.")
        return Redirect(PROFILE)
    if isinstance(reply, PasswordNeeded):
        visit.cookies.set(names.OIDC, reply.browser, max_age=AGE)
        visit.cookies.set(names.OIDC_STEP, reply.state, max_age=AGE)
        return Redirect(PASSWORD)
    return await enter(visit, reply.begun, reply.path)


async def password_form(visit: Visit) -> Reply:
    state = visit.cookies.get(names.OIDC_STEP)
    if not state:
        return Redirect("/sign-in")
    email = await (await visit.people()).oidc.email_to_confirm(state, visit.cookies.get(names.OIDC))
    return View("oidc_password.html", "Your password, once", {"email": email})


async def password(visit: Visit) -> Reply:
    state, browser = visit.cookies.get(names.OIDC_STEP), visit.cookies.get(names.OIDC)
    if not state:
        return Redirect("/sign-in")
    oidc = (await visit.people()).oidc
    try:
        entered = await oidc.with_password(state, browser, visit.raw("password"), visit.client)
    except SignInFailed:
        raise SignInFailed("The password is wrong") from None
    for name in (names.OIDC, names.OIDC_STEP):
        visit.cookies.delete(name)
    return await enter(visit, entered.begun, entered.path)


ROUTES = (
    Route(method="POST", path=OIDC, audience="public", function=begin, form=sign_in_form),
    Route(method="GET", path=f"{OIDC}/{{provider}}/callback", audience="public", function=callback, waits=True),
    Route(method="GET", path=PASSWORD, audience="public", function=password_form),
    Route(method="POST", path=PASSWORD, audience="public", function=password, form=password_form),
)

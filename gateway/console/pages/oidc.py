"""`/sign-in/oidc`: signing in by an identity provider: the way to it, and its answer."""

from __future__ import annotations

from gateway.console import cookies as names
from gateway.console.pages.sign_in import enter
from gateway.console.pages.sign_in import form as sign_in_form
from gateway.console.paths import HOME, own_path, path_with
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import InvalidValue, NotFound, SignInFailed
from gateway.people.oidc.flows import Callback
from gateway.people.oidc.sign_in import Connected, PasswordNeeded

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
    visit.cookies.set(names.of_step(names.OIDC, names.step_of(away.state)), away.browser, max_age=AGE)
    return View("oidc_leave.html", "Sign in", {"address": away.url, "label": away.label})


async def callback(visit: Visit, provider: str) -> Reply:
    came = Callback(visit.query("state"), visit.query("code"), visit.query("error"), visit.query("iss"))
    oidc, cookie = (await visit.people()).oidc, names.of_step(names.OIDC, names.step_of(came.state))
    flow = await oidc.take_up(provider, came, visit.cookies.get(cookie))
    visit.cookies.delete(cookie)  # only now: the link of somebody else ends no sign-in that is under way
    reply = await oidc.finish(flow, came, visit.client, signed_in=visit.actor if visit.is_signed_in else None)
    if isinstance(reply, Connected):
        visit.note(f"You can sign in with {reply.label} now.")
        return Redirect(PROFILE)
    if isinstance(reply, PasswordNeeded):
        step = names.step_of(reply.state)
        visit.cookies.set(names.of_step(names.OIDC, step), reply.browser, max_age=AGE)
        visit.cookies.set(names.of_step(names.OIDC_STEP, step), reply.state, max_age=AGE)
        return Redirect(path_with(PASSWORD, step=step))
    return await enter(visit, reply.begun, reply.path)


async def password_form(visit: Visit) -> Reply:
    state, browser = (visit.cookies.get(name) for name in _cookies(visit))
    if not state:
        return Redirect("/sign-in")
    asked = await (await visit.people()).oidc.confirming(state, browser)
    if visit.is_signed_in and visit.person.email == asked.email:  # in another tab
        return Redirect(HOME)
    values = {"asked": asked, "step": visit.carried("step")}
    return View("oidc_password.html", "Your password, once" if asked.has_password else "Is this you?", values)


async def password(visit: Visit) -> Reply:
    state, browser = (visit.cookies.get(name) for name in _cookies(visit))
    if not state:
        return Redirect("/sign-in")
    oidc = (await visit.people()).oidc
    if visit.text("action") == "take_over":
        entered = await oidc.without_password(state, browser, visit.client)
    else:
        try:
            entered = await oidc.with_password(state, browser, visit.raw("password"), visit.client)
        except SignInFailed:
            raise SignInFailed("The password is wrong") from None
    for name in _cookies(visit):
        visit.cookies.delete(name)
    return await enter(visit, entered.begun, entered.path)


def _cookies(visit: Visit) -> tuple[str, str]:
    """The names of the cookies with the state and the secret of the sign-in that asks for the password."""
    step = visit.carried("step")
    return names.of_step(names.OIDC_STEP, step), names.of_step(names.OIDC, step)


ROUTES = (
    PageRoute(method="POST", path=OIDC, audience="public", function=begin, form=sign_in_form),
    PageRoute(
        method="GET",
        path=f"{OIDC}/{{provider}}/callback",
        audience="public",
        function=callback,
        waits=True,
        completes=True,  # an account that a sign-up creates has its member and its events, whoever still waits for them
    ),
    PageRoute(method="GET", path=PASSWORD, audience="public", function=password_form),
    PageRoute(method="POST", path=PASSWORD, audience="public", function=password, form=password_form),
)

"""Signing in by password, code or link; a forgotten password; signing out."""

from __future__ import annotations

from contextlib import suppress

from gateway.console import cookies as names
from gateway.console.paths import HOME, own_path, path_with
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import InvalidLink, InvalidValue, NotSignedIn, SignInFailed
from gateway.people.sessions import NewSession
from gateway.people.sign_in import SecondStep
from gateway.people.sign_in_links import PATH as LINK

CODE_AGE = 600  # seconds that the second step waits
CODE = "/sign-in/code"


async def form(visit: Visit) -> Reply:
    target = own_path(visit.carried("next"))
    if visit.is_signed_in:
        return Redirect(target)
    people = await visit.people()
    values = {
        "next": target,
        "can_reset": people.mail.is_set_up,
        "can_sign_up": people.sign_ups.is_open,
        "providers": people.oidc.providers,
        "has_operator": await people.users.has_operator(),
    }
    return View("sign_in.html", "Sign in", values)


async def sign_in(visit: Visit) -> Reply:
    people = await visit.people()
    try:
        begun = await people.sign_in.with_password(visit.text("email"), visit.raw("password"), visit.client)
    except SignInFailed:
        raise SignInFailed("The e-mail address or the password is wrong") from None
    return await enter(visit, begun, own_path(visit.text("next")))


async def code_form(visit: Visit) -> Reply:
    target, step = own_path(visit.carried("next")), visit.carried("step")
    token = visit.cookies.get(names.of_step(names.SECOND_STEP, step))
    if not token or await _is_in(visit, token):
        return Redirect(path_with("/sign-in", next=target if target != HOME else ""))
    try:
        takes_over = await (await visit.people()).sign_in.step_takes_over(token)
    except InvalidLink:
        takes_over = False
    return View("sign_in_code.html", "Code", {"next": target, "step": step, "takes_over": takes_over})


async def _is_in(visit: Visit, token: str) -> bool:
    """Whether the person has signed in already, in another tab."""
    if not visit.is_signed_in:
        return False
    try:
        return (await (await visit.people()).sign_in.owner_of_step(token)).id == visit.person.id
    except InvalidLink:
        return True


async def code(visit: Visit) -> Reply:
    people, cookie = await visit.people(), names.of_step(names.SECOND_STEP, visit.carried("step"))
    token = visit.cookies.get(cookie)
    try:
        if visit.text("action") == "take_over":
            session = await people.sign_in.without_code(token, visit.client)
        else:
            session = await people.sign_in.with_code(token, visit.text("code"), visit.client)
    except SignInFailed:
        raise SignInFailed("The code is wrong, or it was used already: wait for the next one") from None
    except InvalidLink:
        visit.cookies.delete(cookie)
        visit.note("The code was asked for too long ago. Sign in again.")
        return Redirect("/sign-in")
    visit.cookies.delete(cookie)
    return await enter(visit, session, own_path(visit.text("next")))


async def link_form(visit: Visit) -> Reply:
    """The link is used by a button, because programs that check e-mails open every address in them."""
    token = visit.query("token") or visit.raw("token")
    sign_in_ = (await visit.people()).sign_in
    user, signs_in = await sign_in_.owner_of_link(token), await sign_in_.link_signs_in(token)
    takes_over = await sign_in_.link_takes_over(token)
    values = {"token": token, "user": user, "signs_in": signs_in, "takes_over": takes_over}
    values |= {"disconnects": await sign_in_.link_disconnects(token)}
    return View("sign_in_link.html", "Welcome", values)


async def use_link(visit: Visit) -> Reply:
    people, token = await visit.people(), visit.raw("token")
    if visit.text("action") == "sign_in":
        return await enter(visit, await people.sign_in.with_link(token, visit.client), HOME)
    password = repeated_password(visit)
    begun = await people.sign_in.reset_password(token, password, visit.client)
    visit.note("Your password is set.")
    return await enter(visit, begun, HOME)


async def forgotten_form(visit: Visit) -> Reply:
    can_reset = (await visit.people()).mail.is_set_up
    return View("forgotten.html", "Forgotten password", {"can_reset": can_reset, "is_sent": False})


async def forgotten(visit: Visit) -> Reply:
    people = await visit.people()
    await people.messages.request_reset(visit.text("email"), visit.client)
    return View("forgotten.html", "Forgotten password", {"can_reset": True, "is_sent": True})


async def sign_out(visit: Visit) -> Reply:
    if visit.session is not None:
        await (await visit.people()).sessions.end(visit.actor, visit.session.id)
    visit.end_session()
    return Redirect("/sign-in")


async def enter(visit: Visit, begun: NewSession | SecondStep, path: str) -> Reply:
    """Begin the session, or ask for the code. A session that the browser had before ends: its id is never used on."""
    if isinstance(begun, SecondStep):
        step = names.step_of(begun.token)
        visit.cookies.set(names.of_step(names.SECOND_STEP, step), begun.token, max_age=CODE_AGE)
        return Redirect(path_with(CODE, step=step, next=path if path != HOME else ""))
    people = await visit.people()
    await people.newcomers.open_account(begun.user.id, visit.asked.address)
    if visit.session is not None:
        await visit.identify()  # claims may have changed the rights, and a new password has ended the session
    if visit.session is not None:
        with suppress(NotSignedIn):
            await people.sessions.end(visit.actor, visit.session.id)
    await visit.begin_session(begun)
    return Redirect(path)


def repeated_password(visit: Visit) -> str:
    """A new password that was typed twice; InvalidValue if the two differ."""
    password = visit.raw("password")
    if password != visit.raw("repeated"):
        raise InvalidValue("The two passwords differ", param="repeated")
    return password


ROUTES = (
    PageRoute(method="GET", path="/sign-in", audience="public", function=form),
    PageRoute(method="POST", path="/sign-in", audience="public", function=sign_in, form=form),
    PageRoute(method="GET", path=CODE, audience="public", function=code_form),
    PageRoute(method="POST", path=CODE, audience="public", function=code, form=code_form),
    PageRoute(method="GET", path=LINK, audience="public", function=link_form),
    PageRoute(method="POST", path=LINK, audience="public", function=use_link, form=link_form),
    PageRoute(method="GET", path="/password/forgotten", audience="public", function=forgotten_form),
    PageRoute(method="POST", path="/password/forgotten", audience="public", function=forgotten, form=forgotten_form),
    PageRoute(method="POST", path="/sign-out", audience="signed_in", function=sign_out, always=True),
)

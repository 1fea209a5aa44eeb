"""`/profile`: one's own name, password, second factor and sessions, and what is stored about oneself."""

from __future__ import annotations

import io

import segno

from gateway.console.json_files import export_file
from gateway.console.pages.oidc import leave_for
from gateway.console.pages.sign_in import repeated_password
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import MOST_IN_MENU, Visit
from gateway.errors import NotFound, SignInFailed
from gateway.people.second_factor import NewSecret
from gateway.web.request_limits import EXPORTS

PROFILE = "/profile"
SECOND_FACTOR = "/profile/second-factor"


async def show(visit: Visit) -> Reply:
    people = await visit.people()
    providers = people.oidc.providers
    accounts = sorted(visit.person.accounts.items())
    values = {
        "user": visit.person,
        "accounts": accounts[:MOST_IN_MENU],
        "has_other_accounts": len(accounts) > MOST_IN_MENU,
        "has_hidden_roles": await people.memberships.has_hidden(visit.actor),
        "sessions": await people.sessions.list(visit.actor, visit.person.id),
        "current": visit.session,
        "identities": await people.identities.list(visit.actor, visit.person.id),
        "providers": providers,
        "labels": {one.issuer: one.label for one in providers},
        "invitations": await people.invitations.of_person(visit.actor),
    }
    return View("profile.html", "Profile", values)


async def rename(visit: Visit) -> Reply:
    await (await visit.people()).users.edit(visit.actor, visit.person.id, {"name": visit.text("name")})
    visit.note("Your name is changed.")
    return Redirect(PROFILE)


async def change_password(visit: Visit) -> Reply:
    password, session = repeated_password(visit), visit.session
    if not visit.person.has_password:
        await visit.confirm_person()
    sign_in = (await visit.people()).sign_in
    current = visit.raw("current_password") if visit.person.has_password else ""
    try:
        await sign_in.change_password(visit.actor, current, password, session_id=session.id if session else "")
    except SignInFailed:
        raise SignInFailed("The current password is wrong") from None
    await visit.make_known(visit.person)
    visit.note("Your password is changed. All other sessions have ended.")
    return Redirect(PROFILE)


async def second_factor(visit: Visit) -> Reply:
    proposed = (await visit.people()).second_factor.propose(visit.person, secret=visit.text("secret"))
    return View("second_factor.html", "Second factor", {"user": visit.person, **_secret(proposed)})


async def enable(visit: Visit) -> Reply:
    await visit.confirm_person()
    await (await visit.people()).second_factor.enable(visit.actor, visit.text("secret"), visit.text("code"))
    visit.note("The second factor is on: the next sign-in asks for a code.")
    return Redirect(PROFILE)


async def disable(visit: Visit) -> Reply:
    await visit.confirm_person()
    try:
        await (await visit.people()).second_factor.disable(visit.actor, visit.text("code"))
    except SignInFailed:
        raise SignInFailed("The code is wrong, or it was used already: wait for the next one") from None
    visit.note("The second factor is off.")
    return Redirect(PROFILE)


async def accept_invitation(visit: Visit, own_invitation: str) -> Reply:
    await (await visit.people()).invitations.accept_own(visit.actor, own_invitation)
    visit.note("The invitation is accepted.")
    return Redirect(PROFILE)


async def connect(visit: Visit) -> Reply:
    await visit.confirm_person()
    return await leave_for(visit, path=PROFILE, connects=visit.person.id)


async def disconnect(visit: Visit) -> Reply:
    await visit.confirm_person()
    identities, keep = (await visit.people()).identities, visit.session.id if visit.session else ""
    await identities.end(visit.actor, visit.person.id, visit.text("issuer"), keep=keep)
    visit.note("The connection has ended.")
    return Redirect(PROFILE)


async def end_session(visit: Visit, session: str) -> Reply:
    people = await visit.people()
    if session not in {one.id for one in await people.sessions.list(visit.actor, visit.person.id)}:
        raise NotFound("There is no such session")
    await people.sessions.end(visit.actor, session)
    if visit.session is not None and visit.session.id == session:
        visit.end_session()
        return Redirect("/sign-in")
    visit.note("The session has ended.")
    return Redirect(PROFILE)


async def end_others(visit: Visit) -> Reply:
    session = visit.session
    ended = await (await visit.people()).sessions.end_all(
        visit.actor, visit.person.id, keep=session.id if session else ""
    )
    visit.note(f"{ended} other sessions have ended." if ended != 1 else "One other session has ended.")
    return Redirect(PROFILE)


async def export(visit: Visit) -> Reply:
    return await export_file(visit, visit.person.id, "personal-data.json")


def _secret(proposed: NewSecret) -> dict[str, str]:
    groups = [proposed.secret[start : start + 4] for start in range(0, len(proposed.secret), 4)]
    return {"secret": proposed.secret, "readable": " ".join(groups), "qr": qr_svg(proposed.uri)}


def qr_svg(text: str) -> str:
    """A QR code for the authenticator app, as an `svg` element.

    Its modules are dark on a light ground in both colour schemes, because apps expect that.
    """
    out = io.BytesIO()
    code = segno.make(text, error="m", micro=False)
    code.save(out, kind="svg", scale=4, border=4, dark="#000", light="#fff", xmldecl=False, svgns=True, nl=False,
              omitsize=True, svgclass="qr", lineclass=None, title="QR code for the authenticator app")  # fmt: skip
    return out.getvalue().decode()


ROUTES = (
    PageRoute(
        method="GET",
        path=PROFILE,
        audience="signed_in",
        function=show,
        help="people#signing-in",
        menu="Profile",
        group="You",
    ),
    PageRoute(method="POST", path="/profile/name", audience="signed_in", function=rename, form=show),
    PageRoute(
        method="POST", path="/profile/password", audience="signed_in", function=change_password, form=show, always=True
    ),
    PageRoute(method="GET", path=SECOND_FACTOR, audience="signed_in", function=second_factor, help="people#signing-in"),
    PageRoute(method="POST", path=SECOND_FACTOR, audience="signed_in", function=enable, form=second_factor),
    PageRoute(method="POST", path="/profile/second-factor/off", audience="signed_in", function=disable, form=show),
    PageRoute(
        method="POST", path="/profile/identities/end", audience="signed_in", function=disconnect, form=show, always=True
    ),
    PageRoute(
        method="POST", path="/profile/invitations/{own_invitation}", audience="signed_in", function=accept_invitation
    ),
    PageRoute(method="POST", path="/profile/identities", audience="signed_in", function=connect, form=show),
    PageRoute(
        method="POST", path="/profile/sessions/{session}/end", audience="signed_in", function=end_session, always=True
    ),
    PageRoute(
        method="POST", path="/profile/sessions/end-others", audience="signed_in", function=end_others, always=True
    ),
    PageRoute(method="POST", path="/profile/data", audience="signed_in", function=export, form=show, limit=EXPORTS),
)

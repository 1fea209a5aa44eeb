"""`/site/users`: all users: search, invite, role, memberships, disable, link to sign in, export, erase."""

from __future__ import annotations

from typing import Any

from gateway.admin.actor import ACCOUNT_ROLES
from gateway.admin.invitations import NewInvitation
from gateway.admin.memberships import checked_account_role
from gateway.admin.pages import page_of
from gateway.admin.request_limits import EXPORTS
from gateway.admin.users import checked_role
from gateway.console.data_export import export_file
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import Route
from gateway.console.visit import Visit
from gateway.errors import InvalidValue
from gateway.http_server.places import Limit

PATH = "/site/users"
ROLES = {"none": "none", "viewer": "viewer: reads everything", "operator": "operator: may do everything"}


async def list_(visit: Visit) -> Reply:
    people, search = await visit.people(), visit.query("q")
    found = await people.users.list(visit.actor, after=visit.query("after"), containing=search.lower(), limit=PAGE + 1)
    shown, last = page_of(found, PAGE)
    values = {
        "users": shown,
        "next": last.email if last else "",
        "search": search,
        "is_first": not visit.query("after"),
        "invitations": await people.invitations.list(visit.actor),
    }
    return View("site_users.html", "Users", values)


async def invite_form(visit: Visit) -> Reply:
    values = {"account": visit.query("account"), "roles": ROLES, "account_roles": ACCOUNT_ROLES}
    return View("site_user_invite.html", "Invite a user", values)


async def invite(visit: Visit) -> Reply:
    people, email, account = await visit.people(), visit.text("email"), visit.text("account")
    role = checked_role(visit.text("role") or "none")
    if role != "none":
        await visit.confirm_password()
        if account:
            raise InvalidValue("Invite to an account or to a role on the site, one after the other", param="role")
    if account:
        account_role = checked_account_role(visit.text("account_role"))
        new = await people.invitations.to_account(visit.actor, email, account, account_role)
    else:
        new = await people.invitations.to_site(visit.actor, email, role)
    return await invited(visit, new, back=f"/site/accounts/{account}" if account else PATH)


async def invited(visit: Visit, new: NewInvitation, *, back: str) -> Reply:
    """Send an invitation, or show its link. The page replaces `back`: a reload shows `back`."""
    delivery = await (await visit.people()).messages.invite_by_mail(new, wanted=True)
    if delivery is not None and delivery.is_sent:
        visit.note(f"The invitation is sent to {new.invitation.email}.")
        return Redirect(back)
    values = {
        "url_once": new.url,
        "back": back,
        "email": new.invitation.email,
        "expires": new.invitation.expires,
        "why": delivery.problem if delivery is not None else "",
        "what": "invitation",
    }
    return View("link_once.html", "The invitation", values)


async def withdraw(visit: Visit, invitation_id: str) -> Reply:
    await (await visit.people()).invitations.withdraw(visit.actor, invitation_id)
    visit.note("The invitation is withdrawn.")
    return Redirect(PATH)


async def show(visit: Visit, user: str) -> Reply:
    people = await visit.people()
    found = await people.users.show(visit.actor, user)
    values = {
        "user": found,
        "roles": ROLES,
        "account_roles": ACCOUNT_ROLES,
        "is_self": visit.person.id == found.id,
        "identities": await people.identities.list(visit.actor, user),
        "labels": {one.issuer: one.label for one in people.oidc.providers},
    }
    return View("site_user.html", found.name or found.email, values)


async def edit(visit: Visit, user: str) -> Reply:
    users = (await visit.people()).users
    before = await users.show(visit.actor, user)
    name, email = visit.text("name"), visit.text("email")
    if email != before.email:
        await visit.confirm_password()
        await users.edit(visit.actor, user, {"name": name, "email": email})
    else:
        await users.edit(visit.actor, user, {"name": name})
    visit.note("The user is changed.")
    return Redirect(f"{PATH}/{user}")


async def set_role(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    role = checked_role(visit.text("role"))
    await (await visit.people()).users.edit(visit.actor, user, {"role": role})
    visit.note(f"The role on the site is {role} now.")
    return Redirect(f"{PATH}/{user}")


async def remove_second_factor(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    await (await visit.people()).users.edit(visit.actor, user, {"second_factor": False})
    visit.note("The second factor is removed.")
    return Redirect(f"{PATH}/{user}")


async def end_identity(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    await (await visit.people()).identities.end(visit.actor, user, visit.text("issuer"))
    visit.note("The connection has ended.")
    return Redirect(f"{PATH}/{user}")


async def join(visit: Visit, user: str) -> Reply:
    role = checked_account_role(visit.text("account_role"))
    await (await visit.people()).memberships.set(visit.actor, user, visit.text("account"), role)
    visit.note(f"The user is {role} of {visit.text('account')} now.")
    return Redirect(f"{PATH}/{user}")


async def leave(visit: Visit, user: str) -> Reply:
    account = visit.text("account")
    await (await visit.people()).memberships.remove(visit.actor, user, account)
    visit.note(f"The user has left {account}; their keys of it are revoked.")
    return Redirect(f"{PATH}/{user}")


async def disable(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    await (await visit.people()).users.disable(visit.actor, user)
    visit.note("The user is disabled: sessions have ended, keys do not work.")
    return Redirect(f"{PATH}/{user}")


async def enable(visit: Visit, user: str) -> Reply:
    await (await visit.people()).users.enable(visit.actor, user)
    visit.note("The user may sign in again.")
    return Redirect(f"{PATH}/{user}")


async def link(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    made = await (await visit.people()).sign_in_links.create(visit.actor, user)
    values = {
        "url_once": made.url,
        "back": f"{PATH}/{user}",
        "email": made.user.email,
        "expires": made.expires,
        "why": "",
        "what": "link to sign in",
    }
    return View("link_once.html", "The link to sign in", values)


async def export(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    return await export_file(visit, user, f"personal-data-{user}.json")


async def erase(visit: Visit, user: str) -> Reply:
    people = await visit.people()
    found = await people.users.show(visit.actor, user)
    if visit.text("erase").lower() != found.email:
        raise InvalidValue("To erase this person, type the e-mail that the page shows", param="erase")
    await visit.confirm_password()
    await people.personal_data.erase(visit.actor, user)
    visit.note("The person is erased, and their keys are revoked.")
    return Redirect(PATH)


def _post(path: str, function: Any, limit: Limit | None = None) -> Route:
    path = f"{PATH}/{{user}}/{path}"
    return Route(method="POST", path=path, audience="operator", function=function, form=show, limit=limit)


ROUTES = (
    Route(method="GET", path=PATH, audience="viewer", function=list_, menu="Users"),
    Route(method="GET", path="/site/new-user", audience="operator", function=invite_form),
    Route(method="POST", path="/site/new-user", audience="operator", function=invite, form=invite_form),
    Route(method="POST", path="/site/invitations/{invitation_id}/withdraw", audience="operator", function=withdraw),
    Route(method="GET", path=f"{PATH}/{{user}}", audience="viewer", function=show),
    _post("name", edit),
    _post("role", set_role),
    _post("second-factor/off", remove_second_factor),
    _post("identities/end", end_identity),
    _post("memberships", join),
    _post("memberships/end", leave),
    _post("disable", disable),
    _post("enable", enable),
    _post("link", link),
    _post("export", export, EXPORTS),
    _post("erase", erase),
)

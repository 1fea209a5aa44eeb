"""`/site/users`: all users: search, invite, role, memberships, disable, link to sign in, export, erase."""

from __future__ import annotations

from typing import Any

from gateway.admin.actor import ACCOUNT_ROLES
from gateway.admin.pages import page_of
from gateway.console.json_files import export_file
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import InvalidValue
from gateway.people.memberships import checked_account_role
from gateway.people.messages import Invited
from gateway.people.users import UserChanges, checked_role
from gateway.web.places import Limit
from gateway.web.request_limits import EXPORTS

PATH = "/site/users"
ROLES = {"none": "none", "viewer": "viewer: reads everything", "operator": "operator: may do everything"}

PROOFS = {"mail": "by e-mail", "provider": "by a sign-in service", "operator": "by an operator", "no": "not proved"}
PROVED = {"yes": True, "no": False}  # what the list shows; all for any other text


async def list_(visit: Visit) -> Reply:
    people, search, after = await visit.people(), visit.query("q"), visit.query("after")
    proved = PROVED.get(visit.query("proved"))
    found = await people.users.list(visit.actor, after=after, containing=search.lower(), proved=proved, limit=PAGE + 1)
    shown, last = page_of(found, PAGE)
    values = {
        "users": shown,
        "next": last.email if last else "",
        "search": search,
        "is_first": not after,
        "proved": visit.query("proved") if proved is not None else "",
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
        done = await people.messages.invite_to_account(visit.actor, email, account, account_role)
    else:
        done = await people.messages.invite_to_site(visit.actor, email, role)
    return invited(visit, done, back=f"/site/accounts/{account}" if account else PATH)


def invited(visit: Visit, done: Invited, *, back: str) -> Reply:
    """Say that an invitation is sent, or show its link. The page replaces `back`: a reload shows `back`."""
    new, delivery = done.new, done.delivery
    if done.is_sent:
        visit.note(f"The invitation is sent to {new.invitation.email}.")
        return Redirect(back)
    values = {
        "url_once": new.url,
        "back": back,
        "email": new.invitation.email,
        "expires": new.invitation.expires,
        "why": delivery.problem_for(visit.actor) if delivery is not None else "",
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
        "proofs": PROOFS,
        "identities": await people.identities.list(visit.actor, user),
        "labels": {one.issuer: one.label for one in people.oidc.providers},
        "tokens": await people.tokens.ending_with(visit.actor, user),
    }
    return View("site_user.html", found.name or found.email, values)


def shown_email(visit: Visit) -> str:
    """The address that the page showed: who sends a form has chosen the person by it."""
    if not (email := visit.text("shown_email")):
        raise InvalidValue("Open the page again: this form does not say for which address it is", param="shown_email")
    return email


async def edit(visit: Visit, user: str) -> Reply:
    users = (await visit.people()).users
    name, email, shown = visit.text("name"), visit.text("email"), shown_email(visit)
    changes: UserChanges = {"name": name}
    if email != shown:
        await visit.confirm_password()
        changes["email"] = email
    await users.edit(visit.actor, user, changes, expected_email=shown)
    visit.note("The user is changed.")
    return Redirect(f"{PATH}/{user}")


async def set_role(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    role = checked_role(visit.text("role"))
    permanent = visit.text("permanent") == "yes"
    users, shown = (await visit.people()).users, shown_email(visit)
    await users.edit(visit.actor, user, {"role": role}, permanent=permanent, expected_email=shown)
    visit.note(f"The role on the site is {role} now.")
    return Redirect(f"{PATH}/{user}")


async def remove_second_factor(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    users, shown = (await visit.people()).users, shown_email(visit)
    await users.edit(visit.actor, user, {"second_factor": False}, expected_email=shown)
    visit.note("The second factor is removed.")
    return Redirect(f"{PATH}/{user}")


async def prove(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    await (await visit.people()).users.prove(visit.actor, user, expected_email=shown_email(visit))
    visit.note("The address is marked as proved.")
    return Redirect(f"{PATH}/{user}")


async def end_identity(visit: Visit, user: str) -> Reply:
    await visit.confirm_password()
    await (await visit.people()).identities.end(visit.actor, user, visit.text("issuer"))
    visit.note("The connection has ended.")
    return Redirect(f"{PATH}/{user}")


async def join(visit: Visit, user: str) -> Reply:
    role = checked_account_role(visit.text("account_role"))
    account, permanent = visit.text("account"), visit.text("permanent") == "yes"
    memberships, shown = (await visit.people()).memberships, shown_email(visit)
    await memberships.set(visit.actor, user, account, role, permanent=permanent, expected_email=shown)
    visit.note(f"The user is {role} of {account} now.")
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
    links = (await visit.people()).sign_in_links
    made = await links.create(visit.actor, user, expected_email=shown_email(visit))
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


def _post(path: str, function: Any, limit: Limit | None = None) -> PageRoute:
    path = f"{PATH}/{{user}}/{path}"
    return PageRoute(method="POST", path=path, audience="operator", function=function, form=show, limit=limit)


ROUTES = (
    PageRoute(
        method="GET",
        path=PATH,
        audience="viewer",
        function=list_,
        help="people#who-is-who",
        menu="Users",
        group="People",
    ),
    PageRoute(
        method="GET", path="/site/new-user", audience="operator", function=invite_form, help="people#links-and-e-mail"
    ),
    PageRoute(method="POST", path="/site/new-user", audience="operator", function=invite, form=invite_form),
    PageRoute(method="POST", path="/site/invitations/{invitation_id}/withdraw", audience="operator", function=withdraw),
    PageRoute(
        method="GET",
        path=f"{PATH}/{{user}}",
        audience="viewer",
        function=show,
        help="people#who-may-give-access-to-a-user",
    ),
    _post("name", edit),
    _post("role", set_role),
    _post("prove", prove),
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

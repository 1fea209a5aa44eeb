"""Members of accounts, and invitations to accounts and to the site."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct

from gateway.admin.actor import AccountRole, SiteRole
from gateway.admin.pages import page_of
from gateway.admin.user_rows import User
from gateway.admin_api import people_documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.resources.users import Email, ExpectedEmail, Permanent, expected_email, user_id
from gateway.admin_api.route import AdminRoute
from gateway.people.messages import Invited

READ = Access(scope="users", target="account", reads=True, owners=True)
CHANGE = Access(scope="users", target="account", owners=True)


class Role(Struct, frozen=True):
    """The role in the account."""

    role: AccountRole
    permanent: Permanent = False
    expected_email: ExpectedEmail = UNSET


class InvitationToAccount(Struct, frozen=True, kw_only=True):
    """An invitation to an account. It is sent by e-mail, unless `mail` is false or there is no mail server.

    If there is one, `mail` can be false for a token with `users` and without an account only.
    """

    email: Email
    role: AccountRole = "member"
    mail: bool = True


class InvitationToSite(Struct, frozen=True, kw_only=True):
    """An invitation to the site. A role needs an operator."""

    email: Email
    role: SiteRole = "none"
    mail: bool = True


async def list_(call: AdminCall, account: str, query: PageQuery) -> dict[str, Any]:
    people = await call.people()
    await people.directory.require(account)
    after = read_cursor("members", query.cursor, tuple[str])
    name = after[0] if after else ""
    found = await people.memberships.list(call.actor, account, after=name, limit=query.limit + 1)
    shown, last = page_of(found, query.limit)
    return page("members", [_member(user, account) for user in shown], [last.email] if last else None)


async def set_(call: AdminCall, account: str, user: str, body: Role) -> dict[str, Any]:
    people = await call.people()
    found = await user_id(call, user)
    expected = expected_email(user, body.expected_email)
    changed = await people.memberships.set(
        call.actor, found, account, body.role, permanent=body.permanent, expected_email=expected
    )
    return _member(changed, account)


async def remove(call: AdminCall, account: str, user: str) -> dict[str, Any]:
    people = await call.people()
    return _member(await people.memberships.remove(call.actor, await user_id(call, user), account), account)


async def invitations(call: AdminCall, account: str) -> dict[str, Any]:
    people = await call.people()
    await people.directory.require(account)
    found = await people.invitations.list(call.actor, account)
    return page("invitations", [invitation.json_form() for invitation in found], None)


async def invite(call: AdminCall, account: str, body: InvitationToAccount) -> dict[str, Any]:
    people = await call.people()
    messages, email = people.messages, body.email
    return _sent(call, await messages.invite_to_account(call.actor, email, account, body.role, by_mail=body.mail))


async def site_invitations(call: AdminCall) -> dict[str, Any]:
    people = await call.people()
    return page("invitations", [found.json_form() for found in await people.invitations.list(call.actor)], None)


async def invite_to_site(call: AdminCall, body: InvitationToSite) -> dict[str, Any]:
    messages, email = (await call.people()).messages, body.email
    return _sent(call, await messages.invite_to_site(call.actor, email, body.role, by_mail=body.mail))


async def withdraw(call: AdminCall, invitation: str) -> dict[str, Any]:
    people = await call.people()
    await people.invitations.withdraw(call.actor, invitation)
    return {"id": invitation, "state": "withdrawn"}


def _sent(call: AdminCall, invited: Invited) -> dict[str, Any]:
    new, delivery, is_sent = invited.new, invited.delivery, invited.is_sent
    if delivery is not None and not is_sent:
        call.notes.append(f"the e-mail could not be sent: {delivery.problem}")
    return new.invitation.json_form() | {"sent": is_sent, "link": None if is_sent else new.url}


def _member(user: User, account: str) -> dict[str, Any]:
    """The user without their roles elsewhere, which are not the account's business."""
    role = user.accounts.get(account, "none")
    return {"id": user.id, "email": user.email, "name": user.name, "role": role, "state": user.state}


ROUTES = (
    AdminRoute(
        method="GET",
        path="/accounts/{account}/members",
        access=READ,
        summary="List the members of an account by e-mail",
        function=list_,
        query=PageQuery,
        answer=Page[people_documents.Member],
    ),
    AdminRoute(
        method="PUT",
        path="/accounts/{account}/members/{user}",
        access=CHANGE,
        summary="Make a user an owner or a member of an account",
        function=set_,
        body=Role,
        answer=people_documents.Member,
    ),
    AdminRoute(
        method="DELETE",
        path="/accounts/{account}/members/{user}",
        access=CHANGE,
        summary="Take a user out of an account, and revoke their keys of it",
        function=remove,
        answer=people_documents.Member,
        writes_store=True,
    ),
    AdminRoute(
        method="GET",
        path="/accounts/{account}/invitations",
        access=Access(scope="read", target="account", owners=True),
        summary="List the open invitations to an account, newest first",
        function=invitations,
        answer=Page[people_documents.Invitation],
    ),
    AdminRoute(
        method="POST",
        path="/accounts/{account}/invitations",
        access=CHANGE,
        summary="Invite a person to an account by e-mail, or make a link to hand over",
        function=invite,
        body=InvitationToAccount,
        answer=people_documents.NewInvitation,
        status=201,
    ),
    AdminRoute(
        method="GET",
        path="/invitations",
        access=Access(scope="read"),
        summary="List the open invitations to the site, newest first",
        function=site_invitations,
        answer=Page[people_documents.Invitation],
    ),
    AdminRoute(
        method="POST",
        path="/invitations",
        access=Access(scope="users"),
        summary="Invite a person to the site by e-mail, or make a link to hand over",
        function=invite_to_site,
        body=InvitationToSite,
        answer=people_documents.NewInvitation,
        status=201,
    ),
    AdminRoute(
        method="DELETE",
        path="/invitations/{invitation}",
        access=Access(scope="users", target="visible", owners=True),
        summary="End an open invitation",
        function=withdraw,
        answer=people_documents.Withdrawn,
    ),
)

"""`/users`: create, list, show, edit, disable, enable, erase; links, sessions, identities and export of a user."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from gateway.admin.actor import SiteRole
from gateway.admin.pages import page_of
from gateway.admin_api import people_documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.route import AdminRoute
from gateway.people.users import UserChanges
from gateway.web.request_limits import EXPORTS

Email = Annotated[str, Meta(min_length=3, max_length=508)]
Name = Annotated[str, Meta(max_length=100)]
Permanent = Annotated[
    bool, Meta(description="A role that claims of a provider give stays without them, and counts in every session.")
]

ExpectedEmail = Annotated[
    Email | UnsetType, Meta(description="The address by which the user was chosen; 409 if the user has another one.")
]

READ = Access(scope="users", reads=True)
CHANGE = Access(scope="users")


class NewUser(Struct, frozen=True, kw_only=True):
    """A user to create. A role on the site needs an operator."""

    email: Email
    name: Name = ""
    role: SiteRole = "none"


class Edited(Struct, frozen=True, kw_only=True):
    """What is to change; an absent field stays."""

    email: Email | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    role: SiteRole | UnsetType = UNSET
    permanent: Permanent = False
    second_factor: Annotated[Literal["removed"] | UnsetType, Meta(description="Ask for no code any more.")] = UNSET
    expected_email: ExpectedEmail = UNSET


class UserQuery(PageQuery, frozen=True):
    """The page, and whose users."""

    proved: Annotated[
        Literal["yes", "no"] | None, Meta(description="Only users whose e-mail address is proved, or is not.")
    ] = None


async def list_(call: AdminCall, query: UserQuery) -> dict[str, Any]:
    after = read_cursor("users", query.cursor, tuple[str])
    users = (await call.people()).users
    proved = None if query.proved is None else query.proved == "yes"
    found = await users.list(call.actor, after=after[0] if after else "", proved=proved, limit=query.limit + 1)
    shown, last = page_of(found, query.limit)
    return page("users", [user.json_form() for user in shown], [last.email] if last else None)


async def create(call: AdminCall, body: NewUser) -> dict[str, Any]:
    people = await call.people()
    user = await people.users.create(call.actor, body.email, name=body.name, role=body.role)
    return await link(call, user.id)


async def show(call: AdminCall, user: str) -> dict[str, Any]:
    users = (await call.people()).users
    found = users.find(call.actor, user) if "@" in user else users.show(call.actor, user)
    return (await found).json_form()


async def edit(call: AdminCall, user: str, body: Edited) -> dict[str, Any]:
    changes: UserChanges = {}
    for name, value in structs.asdict(body).items():
        if name not in ("permanent", "expected_email") and value is not UNSET:
            changes[name] = False if name == "second_factor" else value  # type: ignore[literal-required]
    people = await call.people()
    found = await user_id(call, user)
    expected = expected_email(user, body.expected_email)
    edited = await people.users.edit(call.actor, found, changes, permanent=body.permanent, expected_email=expected)
    return edited.json_form()


async def prove(call: AdminCall, user: str) -> dict[str, Any]:
    people, found = await call.people(), await user_id(call, user)
    return (await people.users.prove(call.actor, found, expected_email=expected_email(user))).json_form()


async def disable(call: AdminCall, user: str) -> dict[str, Any]:
    people = await call.people()
    return (await people.users.disable(call.actor, await user_id(call, user))).json_form()


async def enable(call: AdminCall, user: str) -> dict[str, Any]:
    people = await call.people()
    return (await people.users.enable(call.actor, await user_id(call, user))).json_form()


async def erase(call: AdminCall, user: str) -> dict[str, Any]:
    people, found = await call.people(), await user_id(call, user)
    await people.personal_data.erase(call.actor, found)
    return {"id": found, "state": "erased"}


async def link(call: AdminCall, user: str) -> dict[str, Any]:
    people, found = await call.people(), await user_id(call, user)
    made = await people.sign_in_links.create(call.actor, found, expected_email=expected_email(user))
    return made.user.json_form() | {"link": made.url}


async def export(call: AdminCall, user: str) -> dict[str, Any]:
    people = await call.people()
    return await people.personal_data.export(call.actor, await user_id(call, user))


async def sessions(call: AdminCall, user: str) -> dict[str, Any]:
    people = await call.people()
    found = await people.sessions.list(call.actor, await user_id(call, user))
    return page("sessions", [session.json_form() for session in found], None)


async def end_sessions(call: AdminCall, user: str) -> dict[str, Any]:
    people = await call.people()
    return {"ended": await people.sessions.end_all(call.actor, await user_id(call, user))}


async def identities(call: AdminCall, user: str) -> dict[str, Any]:
    people = await call.people()
    found = await people.identities.list(call.actor, await user_id(call, user))
    return page("identities", [identity.json_form() for identity in found], None)


async def end_identities(call: AdminCall, user: str) -> dict[str, Any]:
    people = await call.people()
    return {"ended": await people.identities.end_all(call.actor, await user_id(call, user))}


async def user_id(call: AdminCall, user: str) -> str:
    """The id of a user who is named by id or e-mail; NotFound. Only who may read users finds them by e-mail."""
    if "@" not in user:
        return user
    people = await call.people()
    return (await people.users.find(call.actor, user)).id


def expected_email(user: str, stated: str | UnsetType = UNSET) -> str:
    """The address that the user must have: the stated one, or that of the path; "" if the user is named by id."""
    if stated is not UNSET:
        return stated
    return user if "@" in user else ""


def _post(path: str, function: Any, summary: str) -> AdminRoute:
    """A change of a user, and of the keys of the user in the store."""
    return AdminRoute(
        method="POST",
        path=f"/users/{{user}}/{path}",
        access=CHANGE,
        summary=summary,
        function=function,
        answer=people_documents.User,
        writes_store=True,
    )


ROUTES = (
    AdminRoute(
        method="GET",
        path="/users",
        access=READ,
        summary="List users by e-mail",
        function=list_,
        query=UserQuery,
        answer=Page[people_documents.User],
    ),
    AdminRoute(
        method="POST",
        path="/users",
        access=CHANGE,
        summary="Create a user, and a link with which they sign in once",
        function=create,
        body=NewUser,
        answer=people_documents.UserWithLink,
        status=201,
    ),
    AdminRoute(
        method="GET",
        path="/users/{user}",
        access=READ,
        summary="Show a user, named by id or e-mail",
        function=show,
        answer=people_documents.User,
    ),
    AdminRoute(
        method="PATCH",
        path="/users/{user}",
        access=CHANGE,
        summary="Change a user",
        function=edit,
        body=Edited,
        answer=people_documents.User,
    ),
    AdminRoute(
        method="DELETE",
        path="/users/{user}",
        access=CHANGE,
        summary="Erase all that is stored about a person, and revoke their keys; it cannot be undone",
        function=erase,
        answer=people_documents.Erased,
        writes_store=True,
    ),
    AdminRoute(
        method="POST",
        path="/users/{user}/prove",
        access=Access(scope="users", operators_only=True),
        summary="Mark the e-mail address of a user as proved",
        function=prove,
        answer=people_documents.User,
    ),
    _post(
        "disable",
        disable,
        "Keep a user from signing in, end their sessions, links, invitations and admin tokens, and disable their keys",
    ),
    _post("enable", enable, "Undo disable; the keys of the user work again"),
    AdminRoute(
        method="POST",
        path="/users/{user}/link",
        access=CHANGE,
        summary="Make a new link with which a user signs in once",
        function=link,
        answer=people_documents.UserWithLink,
        status=201,
    ),
    AdminRoute(
        method="GET",
        path="/users/{user}/sessions",
        access=READ,
        summary="List where a user is signed in, newest first",
        function=sessions,
        answer=Page[people_documents.Session],
    ),
    AdminRoute(
        method="DELETE",
        path="/users/{user}/sessions",
        access=CHANGE,
        summary="End all sessions of a user",
        function=end_sessions,
        answer=people_documents.EndedSessions,
    ),
    AdminRoute(
        method="GET",
        path="/users/{user}/identities",
        access=READ,
        summary="List the identity providers that a user is connected with",
        function=identities,
        answer=Page[people_documents.Identity],
    ),
    AdminRoute(
        method="DELETE",
        path="/users/{user}/identities",
        access=CHANGE,
        summary="End all connections of a user with identity providers",
        function=end_identities,
        answer=people_documents.EndedIdentities,
    ),
    AdminRoute(
        method="GET",
        path="/users/{user}/export",
        access=Access(scope="users", also="read"),
        summary="Export all that is stored about a person",
        function=export,
        answer=dict[str, Any],
        limit=EXPORTS,
    ),
)

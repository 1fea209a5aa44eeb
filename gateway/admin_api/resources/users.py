"""`/users`: create, list, show, edit, disable, enable, erase; links, sessions, identities and export of a user."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from gateway.admin.actor import SiteRole
from gateway.admin.pages import page_of
from gateway.admin.request_limits import EXPORTS
from gateway.admin.users import UserChanges
from gateway.admin_api import people_documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import Call
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.route import Route

Email = Annotated[str, Meta(min_length=3, max_length=508)]
Name = Annotated[str, Meta(max_length=100)]

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
    second_factor: Annotated[Literal["removed"] | UnsetType, Meta(description="Ask for no code any more.")] = UNSET


async def list_(call: Call, query: PageQuery) -> dict[str, Any]:
    after = read_cursor("users", query.cursor, tuple[str])
    users = (await call.people()).users
    found = await users.list(call.actor, after=after[0] if after else "", limit=query.limit + 1)
    shown, last = page_of(found, query.limit)
    return page("users", [user.json_form() for user in shown], [last.email] if last else None)


async def create(call: Call, body: NewUser) -> dict[str, Any]:
    people = await call.people()
    user = await people.users.create(call.actor, body.email, name=body.name, role=body.role)
    return await link(call, user.id)


async def show(call: Call, user: str) -> dict[str, Any]:
    users = (await call.people()).users
    found = users.find(call.actor, user) if "@" in user else users.show(call.actor, user)
    return (await found).json_form()


async def edit(call: Call, user: str, body: Edited) -> dict[str, Any]:
    changes: UserChanges = {}
    for name, value in structs.asdict(body).items():
        if value is not UNSET:
            changes[name] = False if name == "second_factor" else value  # type: ignore[literal-required]
    people = await call.people()
    return (await people.users.edit(call.actor, await user_id(call, user), changes)).json_form()


async def disable(call: Call, user: str) -> dict[str, Any]:
    people = await call.people()
    return (await people.users.disable(call.actor, await user_id(call, user))).json_form()


async def enable(call: Call, user: str) -> dict[str, Any]:
    people = await call.people()
    return (await people.users.enable(call.actor, await user_id(call, user))).json_form()


async def erase(call: Call, user: str) -> dict[str, Any]:
    people, found = await call.people(), await user_id(call, user)
    await people.personal_data.erase(call.actor, found)
    return {"id": found, "state": "erased"}


async def link(call: Call, user: str) -> dict[str, Any]:
    people = await call.people()
    made = await people.sign_in_links.create(call.actor, await user_id(call, user))
    return made.user.json_form() | {"link": made.url}


async def export(call: Call, user: str) -> dict[str, Any]:
    people = await call.people()
    return await people.personal_data.export(call.actor, await user_id(call, user))


async def sessions(call: Call, user: str) -> dict[str, Any]:
    people = await call.people()
    found = await people.sessions.list(call.actor, await user_id(call, user))
    return page("sessions", [session.json_form() for session in found], None)


async def end_sessions(call: Call, user: str) -> dict[str, Any]:
    people = await call.people()
    return {"ended": await people.sessions.end_all(call.actor, await user_id(call, user))}


async def identities(call: Call, user: str) -> dict[str, Any]:
    people = await call.people()
    found = await people.identities.list(call.actor, await user_id(call, user))
    return page("identities", [identity.json_form() for identity in found], None)


async def end_identities(call: Call, user: str) -> dict[str, Any]:
    people = await call.people()
    return {"ended": await people.identities.end_all(call.actor, await user_id(call, user))}


async def user_id(call: Call, user: str) -> str:
    """The id of a user who is named by id or e-mail; NotFound. Only who may read users finds them by e-mail."""
    if "@" not in user:
        return user
    people = await call.people()
    return (await people.users.find(call.actor, user)).id


def _post(path: str, function: Any, summary: str) -> Route:
    """A change of a user, and of the keys of the user in the store."""
    return Route(
        method="POST",
        path=f"/users/{{user}}/{path}",
        access=CHANGE,
        summary=summary,
        function=function,
        answer=people_documents.User,
        writes_store=True,
    )


ROUTES = (
    Route(
        method="GET",
        path="/users",
        access=READ,
        summary="List users by e-mail",
        function=list_,
        query=PageQuery,
        answer=Page[people_documents.User],
    ),
    Route(
        method="POST",
        path="/users",
        access=CHANGE,
        summary="Create a user, and a link with which they sign in once",
        function=create,
        body=NewUser,
        answer=people_documents.UserWithLink,
        status=201,
    ),
    Route(
        method="GET",
        path="/users/{user}",
        access=READ,
        summary="Show a user, named by id or e-mail",
        function=show,
        answer=people_documents.User,
    ),
    Route(
        method="PATCH",
        path="/users/{user}",
        access=CHANGE,
        summary="Change a user",
        function=edit,
        body=Edited,
        answer=people_documents.User,
    ),
    Route(
        method="DELETE",
        path="/users/{user}",
        access=CHANGE,
        summary="Erase all that is stored about a person, and revoke their keys; it cannot be undone",
        function=erase,
        answer=people_documents.Erased,
        writes_store=True,
    ),
    _post(
        "disable",
        disable,
        "Keep a user from signing in, end their sessions, links and invitations, and disable their keys",
    ),
    _post("enable", enable, "Undo disable; the keys of the user work again"),
    Route(
        method="POST",
        path="/users/{user}/link",
        access=CHANGE,
        summary="Make a new link with which a user signs in once",
        function=link,
        answer=people_documents.UserWithLink,
        status=201,
    ),
    Route(
        method="GET",
        path="/users/{user}/sessions",
        access=READ,
        summary="List where a user is signed in, newest first",
        function=sessions,
        answer=Page[people_documents.Session],
    ),
    Route(
        method="DELETE",
        path="/users/{user}/sessions",
        access=CHANGE,
        summary="End all sessions of a user",
        function=end_sessions,
        answer=people_documents.EndedSessions,
    ),
    Route(
        method="GET",
        path="/users/{user}/identities",
        access=READ,
        summary="List the identity providers that a user is connected with",
        function=identities,
        answer=Page[people_documents.Identity],
    ),
    Route(
        method="DELETE",
        path="/users/{user}/identities",
        access=CHANGE,
        summary="End all connections of a user with identity providers",
        function=end_identities,
        answer=people_documents.EndedIdentities,
    ),
    Route(
        method="GET",
        path="/users/{user}/export",
        access=CHANGE,
        summary="Export all that is stored about a person",
        function=export,
        answer=dict[str, Any],
        limit=EXPORTS,
    ),
)

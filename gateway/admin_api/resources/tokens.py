"""`/tokens`: create, list, revoke; `/token` is the token of the request."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.admin.actor import SCOPES, Scope
from gateway.admin.pages import page_of
from gateway.admin_api import people_documents
from gateway.admin_api.access import ANY_TOKEN, Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.resources.keys import Moment
from gateway.admin_api.route import AdminRoute
from gateway.version import __version__


class NewToken(Struct, frozen=True, kw_only=True):
    """A token to create, for one account or for the site."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    account: str | None = None
    expires: Moment | None = None


async def own(call: AdminCall) -> dict[str, Any]:
    actor = call.actor
    scopes = [scope for scope in SCOPES if scope in actor.scopes]
    return {"id": actor.id, "scopes": scopes, "account": actor.account or None, "version": __version__}


async def revoke_own(call: AdminCall) -> dict[str, Any]:
    return await revoke(call, call.actor.id)


async def list_(call: AdminCall, query: PageQuery) -> dict[str, Any]:
    before = read_cursor("tokens", query.cursor, tuple[str])
    tokens = (await call.people()).tokens
    found = await tokens.list(call.actor, before=before[0] if before else "", limit=query.limit + 1)
    shown, last = page_of(found, query.limit)
    return page("tokens", [token.json_form() for token in shown], [last.id] if last else None)


async def create(call: AdminCall, body: NewToken) -> dict[str, Any]:
    tokens = (await call.people()).tokens
    new = await tokens.create(call.actor, body.name, body.scopes, account=body.account, expires=body.expires)
    return new.json_form()


async def revoke(call: AdminCall, token: str) -> dict[str, Any]:
    tokens = (await call.people()).tokens
    return (await tokens.revoke(call.actor, token)).json_form()


ROUTES = (
    AdminRoute(
        method="GET",
        path="/token",
        access=ANY_TOKEN,
        summary="Show the token of this request",
        function=own,
        answer=people_documents.TokenInfo,
    ),
    AdminRoute(
        method="DELETE",
        path="/token",
        access=ANY_TOKEN,
        summary="End the token of this request permanently and at once",
        function=revoke_own,
        answer=people_documents.Token,
        ends_token=True,
    ),
    AdminRoute(
        method="GET",
        path="/tokens",
        access=Access(scope="config", reads=True),
        summary="List admin tokens, newest first",
        function=list_,
        query=PageQuery,
        answer=Page[people_documents.Token],
    ),
    AdminRoute(
        method="POST",
        path="/tokens",
        access=Access(scope="config", operators_only=True),
        summary="Create an admin token; its text is shown only in this answer",
        function=create,
        body=NewToken,
        answer=people_documents.NewToken,
        status=201,
    ),
    AdminRoute(
        method="POST",
        path="/tokens/{token}/revoke",
        access=Access(scope="config", operators_only=True),
        summary="End an admin token permanently and at once",
        function=revoke,
        answer=people_documents.Token,
        ends_token=True,
    ),
)

"""`/accounts/{account}/members/{user}/keys` and `…/budget`: keys of users, and what all keys of a member may spend."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, structs

from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.documents import Amount
from gateway.admin_api.inputs import amount_of
from gateway.admin_api.pagination import Page, page
from gateway.admin_api.resources.accounts import AmountText
from gateway.admin_api.resources.keys import KeyToCreate, NewKey, options_of
from gateway.admin_api.resources.users import user_id
from gateway.admin_api.route import AdminRoute

READ = Access(scope="keys", target="account", reads=True, owners=True)
CHANGE = Access(scope="keys", target="account", owners=True)


class BudgetChanges(Struct, frozen=True, kw_only=True):
    """The budget of a member and its period; null removes, an absent field stays."""

    budget: AmountText | UnsetType | None = UNSET
    every: Literal["month", "week", "day", "never"] | UnsetType | None = UNSET


class MemberBudget(Struct):
    """What a member has spent in an account over all their keys, and the budget there."""

    account: str
    user: str
    budget: Amount | None
    every: str | None
    spent: Amount
    period_spent: Amount
    held: Amount
    unreadable: bool


async def create(call: AdminCall, account: str, user: str, body: KeyToCreate) -> dict[str, Any]:
    people = await call.people()
    options = options_of(call, body)
    return (await people.member_keys.create(call.actor, account, await user_id(call, user), **options)).json_form()


async def list_(call: AdminCall, account: str, user: str) -> dict[str, Any]:
    return await _keys(call, user, account)


async def list_of_user(call: AdminCall, user: str) -> dict[str, Any]:
    return await _keys(call, user, "")


async def budget(call: AdminCall, account: str, user: str) -> dict[str, Any]:
    people = await call.people()
    return (await people.member_budgets.show(call.actor, await user_id(call, user), account)).json_form()


async def change_budget(call: AdminCall, account: str, user: str, body: BudgetChanges) -> dict[str, Any]:
    people = await call.people()
    given = {name: value for name, value in structs.asdict(body).items() if value is not UNSET}
    clear = [name for name, value in given.items() if value is None]
    values = {name: value for name, value in given.items() if value is not None}
    if "budget" in values:
        values["budget"] = amount_of(values["budget"], "budget")
    member = await user_id(call, user)
    return (await people.member_budgets.change(call.actor, member, account, clear=clear, **values)).json_form()


async def _keys(call: AdminCall, user: str, account: str) -> dict[str, Any]:
    people = await call.people()
    found = await people.member_keys.list(call.actor, await user_id(call, user), account)
    return page("keys", [key.json_form() for key in found], None)


ROUTES = (
    AdminRoute(
        method="GET",
        path="/users/{user}/keys",
        access=Access(scope="keys", reads=True),
        summary="List the keys of a user in all accounts, oldest first",
        function=list_of_user,
        answer=Page[documents.Key],
    ),
    AdminRoute(
        method="GET",
        path="/accounts/{account}/members/{user}/keys",
        access=READ,
        summary="List the keys of a member, oldest first",
        function=list_,
        answer=Page[documents.Key],
    ),
    AdminRoute(
        method="POST",
        path="/accounts/{account}/members/{user}/keys",
        access=CHANGE,
        summary="Create a key of a member; its text is shown only in this answer",
        function=create,
        body=NewKey,
        answer=documents.NewKey,
        status=201,
        writes_store=True,
    ),
    AdminRoute(
        method="GET",
        path="/accounts/{account}/members/{user}/budget",
        access=READ,
        summary="Show what a member has spent over all their keys, and the budget",
        function=budget,
        answer=MemberBudget,
    ),
    AdminRoute(
        method="PATCH",
        path="/accounts/{account}/members/{user}/budget",
        access=CHANGE,
        summary="Set or remove what a member may spend over all their keys",
        function=change_budget,
        body=BudgetChanges,
        answer=MemberBudget,
        writes_store=True,
    ),
)

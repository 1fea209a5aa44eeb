"""`/accounts`: open, list, show, change, credit, refund."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from gateway.accounts.accounts import Account as AccountRecord
from gateway.admin.account_limits import Limits
from gateway.admin.model_names import known_group, known_models
from gateway.admin.pages import page_of
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.inputs import AMOUNT, amount_of
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.route import AdminRoute
from gateway.amounts import format_amount

AmountText = Annotated[str, Meta(pattern=AMOUNT, examples=["12.5"], description="Decimal text, at most nine places.")]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]

READ = Access(scope="accounts", target="account", reads=True)
# What the operator decided about an account, a token of this account does not change.
DECIDE = Access(scope="accounts", target="account", of_site=True)
PRICE = Access(scope="accounts", also="credits", target="account", of_site=True)
MONEY = Access(scope="credits", target="account")


class NewAccount(Struct, frozen=True, kw_only=True):
    """An account to open. A `balance`, or another group than `default`, needs the scope `credits`, too."""

    name: str
    group: str = "default"
    balance: AmountText = "0"


class Move(Struct, frozen=True):
    """The group to move to."""

    group: str


class Models(Struct, frozen=True):
    """Names or aliases of models."""

    models: Annotated[list[str], Meta(min_length=1, max_length=1000)]


class LimitChanges(Struct, frozen=True, kw_only=True):
    """Limits to set; null removes one, an absent one stays."""

    floor: AmountText | UnsetType | None = UNSET
    rpm: Count | UnsetType | None = UNSET
    tpm: Count | UnsetType | None = UNSET
    concurrency: Count | UnsetType | None = UNSET
    monthly: AmountText | UnsetType | None = UNSET
    max_session_cost: AmountText | UnsetType | None = UNSET


class NewCredit(Struct, frozen=True, kw_only=True):
    """Money to add; with `allow_negative` a negative amount takes it away."""

    amount: AmountText
    note: Annotated[str, Meta(max_length=500)] = ""
    allow_negative: bool = False
    force: Annotated[bool, Meta(description="Also take what running calls hold, or what the account lacks.")] = False


class NewRefund(Struct, frozen=True, kw_only=True):
    """A refund of a call's charge; without an amount, of all that is left of it."""

    request_id: Annotated[str, Meta(min_length=1, max_length=256)]
    amount: AmountText | None = None
    note: Annotated[str, Meta(max_length=500)] = ""


async def list_(call: AdminCall, query: PageQuery) -> dict[str, Any]:
    after = read_cursor("accounts", query.cursor, tuple[str])
    if call.actor.account:  # the only one that the token may see
        names = [call.actor.account] if after is None else []
        return page("accounts", [(await call.store.accounts.show(name)).json_form() for name in names], None)
    found = await call.store.accounts.page(after=after[0] if after else "", limit=query.limit + 1)
    shown, last = page_of(found, query.limit)
    return page("accounts", [account.json_form() for account in shown], [last.name] if last else None)


async def create(call: AdminCall, body: NewAccount) -> dict[str, Any]:
    known_group(call.services.settings, body.group)
    balance = amount_of(body.balance, "balance")
    created = await call.store.account_admin.create(call.actor, body.name, group=body.group, balance=balance)
    await call.store.remember_accounts()
    return created.json_form()


async def show(call: AdminCall, account: str) -> dict[str, Any]:
    return (await call.store.accounts.show(account)).json_form()


async def disable(call: AdminCall, account: str) -> dict[str, Any]:
    return await _form(call.store.account_admin.disable(call.actor, account))


async def enable(call: AdminCall, account: str) -> dict[str, Any]:
    return await _form(call.store.account_admin.enable(call.actor, account))


async def move(call: AdminCall, account: str, body: Move) -> dict[str, Any]:
    known_group(call.services.settings, body.group)
    return await _form(call.store.account_admin.move(call.actor, account, body.group))


async def allow(call: AdminCall, account: str, body: Models) -> dict[str, Any]:
    names = await _models(call, account, body)
    return await _form(call.store.account_admin.allow(call.actor, account, names))


async def deny(call: AdminCall, account: str, body: Models) -> dict[str, Any]:
    names = await _models(call, account, body)
    return await _form(call.store.account_admin.deny(call.actor, account, names))


async def limit(call: AdminCall, account: str, body: LimitChanges) -> dict[str, Any]:
    given = {name: value for name, value in structs.asdict(body).items() if value is not UNSET}
    clear = [name for name, value in given.items() if value is None]
    limits: Limits = {}
    for name, value in given.items():
        if value is not None:
            limits[name] = amount_of(value, name) if isinstance(value, str) else value  # type: ignore[literal-required]
    return await _form(call.store.money.limit(call.actor, account, clear=clear, **limits))


async def credit(call: AdminCall, account: str, body: NewCredit) -> dict[str, Any]:
    credited = await call.store.account_admin.credit(
        call.actor,
        account,
        amount_of(body.amount, "amount"),
        operation=call.operation,
        note=body.note,
        allow_negative=body.allow_negative,
        force=body.force,
    )
    call.replayed = credited.status == "repeated"
    return {"account": account, "operation": call.operation, "amount": format_amount(credited.amount)}


async def refund(call: AdminCall, account: str, body: NewRefund) -> dict[str, Any]:
    refunded = await call.store.money.refund(
        call.actor,
        account,
        body.request_id,
        None if body.amount is None else amount_of(body.amount, "amount"),
        operation=call.operation,
        note=body.note,
    )
    call.replayed = refunded.status == "repeated"
    form = {"account": account, "operation": refunded.operation, "request_id": body.request_id}
    return {**form, "amount": format_amount(refunded.amount)}


async def _form(changed: Awaitable[AccountRecord]) -> dict[str, Any]:
    return (await changed).json_form()


async def _models(call: AdminCall, account: str, body: Models) -> list[str]:
    record = await call.store.accounts.show(account)
    # A model that is gone from the configuration can still be taken off an account's lists.
    return known_models(call.services.settings, body.models, also={*record.allowed, *record.denied})


def _change(
    path: str, function: Any, summary: str, body: type[Struct] | None = None, access: Access = DECIDE
) -> AdminRoute:
    return AdminRoute(
        method="POST",
        path=f"/accounts/{{account}}/{path}",
        access=access,
        summary=summary,
        function=function,
        body=body,
        answer=documents.Account,
        writes_store=True,
    )


ROUTES = (
    AdminRoute(
        method="GET",
        path="/accounts",
        access=Access(scope="accounts", target="visible", reads=True),
        summary="List accounts by name",
        function=list_,
        query=PageQuery,
        answer=Page[documents.Account],
    ),
    AdminRoute(
        method="POST",
        path="/accounts",
        access=Access(scope="accounts"),
        summary="Open an account; a balance or a group needs the scope credits, too",
        function=create,
        body=NewAccount,
        answer=documents.Account,
        status=201,
        writes_store=True,
    ),
    AdminRoute(
        method="GET",
        path="/accounts/{account}",
        access=READ,
        summary="Show an account",
        function=show,
        answer=documents.Account,
    ),
    _change("disable", disable, "Refuse every further call of an account, and cut its running calls"),
    _change("enable", enable, "Undo disable"),
    _change("move", move, "Put an account into another group", Move, PRICE),
    _change("allow", allow, "Allow models to an account, regardless of its group", Models),
    _change("deny", deny, "Deny models to an account, regardless of its group", Models),
    AdminRoute(
        method="PATCH",
        path="/accounts/{account}/limits",
        access=DECIDE,
        summary="Set or remove limits of an account; the floor needs the scope credits, too",
        function=limit,
        body=LimitChanges,
        answer=documents.Account,
        writes_store=True,
    ),
    AdminRoute(
        method="POST",
        path="/accounts/{account}/credits",
        access=MONEY,
        summary="Add to the balance of an account, once per Idempotency-Key",
        function=credit,
        body=NewCredit,
        answer=documents.Credit,
        moves_money=True,
        writes_store=True,
    ),
    AdminRoute(
        method="POST",
        path="/accounts/{account}/refunds",
        access=MONEY,
        summary="Give back what a call was charged, once per Idempotency-Key",
        function=refund,
        body=NewRefund,
        answer=documents.Refund,
        moves_money=True,
        writes_store=True,
    ),
)

"""What commands work with over a server: the services of `Session` that they use, as requests to the admin API.

Each class has the names and parameters of a service in `gateway.admin`, so that a command is written once; a test holds
them to each other. A result is the document of the answer, which the command prints.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack

from gateway.admin.accounts import CreditOptions
from gateway.admin.actor import Actor, command_line
from gateway.amounts import format_amount, parse_amount
from gateway.billing.price_terms import OwnPrice
from gateway.cli.admin_client import AdminClient
from gateway.cli.root import Failure
from gateway.cli.server_option import Server
from gateway.ledger import Credited
from gateway.ledger.refund import Refunded

T = TypeVar("T")
NOT_REMOTE = "this does not work over --server; run it on the gateway's machine"
AMOUNTS = ("balance", "amount", "floor", "monthly", "budget", "max_cost")


class Document:
    """An object of an answer; its fields are attributes."""

    def __init__(self, form: Mapping[str, Any], **more: Any) -> None:
        self._form = form
        self._more = more

    def __getattr__(self, name: str) -> Any:
        for fields in (self._more, self._form):
            if name in fields:
                return fields[name]
        raise AttributeError(name)

    def json_form(self) -> dict[str, Any]:
        """The document."""
        return dict(self._form)


Documents = list[Document]


class RemoteSession:
    """The services of one command over a server."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self.actor: Actor = command_line("")  # the server knows who acts by the token
        self.accounts = RemoteAccounts(client)
        self.account_admin = RemoteAccountAdmin(client)
        self.account_prices = RemoteAccountPrices(client)
        self.money = RemoteMoney(client)
        self.keys = RemoteKeys(client)
        self.key_editor = self.keys
        self.key_changes = RemoteKeyChanges(client)
        self.key_admin = RemoteKeyAdmin(client)

    async def note_doubts(self) -> None:
        """Nothing: the client notes what the server could not confirm."""

    async def remember_accounts(self) -> None:
        """Nothing: the server remembers them."""

    async def create_key(self, actor: Actor, account: str, **options: Any) -> Document:
        """`StoreServices.create_key`."""
        form = await self.client.post("accounts", account, "keys", body=key_body(options))
        return Document(form, text=form["key"])

    async def rotate_key(self, actor: Actor, key_id: str, *, overlap: timedelta) -> Document:
        """`StoreServices.rotate_key`."""
        body = {"overlap": int(overlap.total_seconds())}
        form = await self.client.post("keys", key_id, "rotate", body=body)
        new = {name: value for name, value in form.items() if name not in ("replaces", "old_expires")}
        return Document({}, new=Document(new, text=new["key"]), old=Document({"expires": form["old_expires"]}))


class RemoteAccounts:
    """`Accounts`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def show(self, name: str) -> Document:
        return Document(await self._client.get("accounts", name))

    async def list(self) -> Documents:
        return [Document(form) for form in await self._client.pages("accounts")]


class RemoteAccountAdmin:
    """`AccountAdmin`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def create(self, actor: Actor, name: str, *, group: str = "default", balance: int = 0) -> Document:
        body = {"name": name, "group": group} | written({"balance": balance} if balance else {})
        return Document(await self._client.post("accounts", body=body))

    async def credit(self, actor: Actor, name: str, amount: int, **options: Unpack[CreditOptions]) -> Credited:
        operation = options.pop("operation", None) or new_operation()
        body = {"amount": format_amount(amount), **options}
        reply = await self._client.send("POST", "accounts", name, "credits", body=body, operation=operation)
        return Credited("repeated" if reply.is_repeat else "done", parse_amount(reply.document["amount"]), 0)

    async def disable(self, actor: Actor, name: str) -> Document:
        return await self._change(name, "disable")

    async def enable(self, actor: Actor, name: str) -> Document:
        return await self._change(name, "enable")

    async def move(self, actor: Actor, name: str, group: str) -> Document:
        return await self._change(name, "move", {"group": group})

    async def allow(self, actor: Actor, name: str, models: Sequence[str]) -> Document:
        return await self._change(name, "allow", {"models": models})

    async def deny(self, actor: Actor, name: str, models: Sequence[str]) -> Document:
        return await self._change(name, "deny", {"models": models})

    async def _change(self, name: str, change: str, body: Mapping[str, Any] | None = None) -> Document:
        return Document(await self._client.post("accounts", name, change, body=body))


class RemoteAccountPrices:
    """`AccountPrices`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def set(self, actor: Actor, account: str, model: str, own: OwnPrice | None) -> Document:
        path = ("accounts", account, "prices", model)
        if own is None:
            return Document((await self._client.send("DELETE", *path)).document)
        amounts = {name: format_amount(amount) for name, amount in own.amounts}
        body: dict[str, Any] = {"amounts": amounts} if amounts else {"factor": format_amount(own.factor)}
        return Document((await self._client.send("PUT", *path, body=body)).document)


class RemoteMoney:
    """`MoneyAdmin`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def refund(
        self,
        actor: Actor,
        account: str,
        request_id: str,
        amount: int | None = None,
        *,
        operation: str | None = None,
        note: str = "",
    ) -> Refunded:
        body = {"request_id": request_id, "note": note, **written({"amount": amount})}
        reply = await self._client.send(
            "POST", "accounts", account, "refunds", body=body, operation=operation or new_operation()
        )
        form = reply.document
        return Refunded("repeated" if reply.is_repeat else "done", parse_amount(form["amount"]), 0, form["operation"])

    async def limit(self, actor: Actor, account: str, *, clear: Collection[str] = (), **limits: Any) -> Document:
        body = cleared(clear, limits)
        return Document((await self._client.send("PATCH", "accounts", account, "limits", body=body)).document)


class RemoteKeys:
    """`Keys` and `KeyEditor`, as far as they read."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def list(self, account: str | None = None) -> Documents:
        return await self._list(account)

    async def unused(self, account: str | None, since: datetime) -> Documents:
        return await self._list(account, unused_since=since.isoformat())

    async def show(self, key_id: str) -> Document:
        return Document(await self._client.get("keys", key_id))

    async def _list(self, account: str | None, **query: Any) -> Documents:
        path = ("keys",) if account is None else ("accounts", account, "keys")
        return [Document(form) for form in await self._client.pages(*path, **query)]


class RemoteKeyChanges:
    """`KeyChanges`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def edit(
        self, actor: Actor, key_id: str, *, name: str | None = None, clear: Collection[str] = (), **limits: Any
    ) -> Document:
        body = cleared(clear, {"name": name, **limits})
        return Document((await self._client.send("PATCH", "keys", key_id, body=body)).document)


class RemoteKeyAdmin:
    """`KeyAdmin`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def revoke(self, actor: Actor, key_id: str) -> Document:
        return Document(await self._client.post("keys", key_id, "revoke"))


def run_remote(server: Server, work: Callable[[Any], Awaitable[T]]) -> T:
    """Do `work` with a `RemoteSession`."""

    async def session() -> T:
        client = AdminClient(server)
        try:
            return await work(RemoteSession(client))
        except AttributeError as error:
            if type(error.obj).__module__.startswith(
                "gateway.cli.remote_"
            ):  # a service that only a session on this machine has
                raise Failure(NOT_REMOTE) from None
            raise
        finally:
            await client.close()

    return asyncio.run(session())


def new_operation() -> str:
    """A name for a movement of money that has none."""
    return f"cli-{secrets.token_hex(12)}"


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as a body has them; None is left out."""
    return {name: _value(name, value) for name, value in values.items() if value is not None}


def key_body(options: Mapping[str, Any]) -> dict[str, Any]:
    """The body that creates a key with the options of `KeyAdmin.create`."""
    values = dict(options)
    shows_cost = values.pop("show_cost", False)
    return written(values) | ({"response_headers": ["cost"]} if shows_cost else {})


def _value(name: str, value: Any) -> Any:
    if name in AMOUNTS:
        return format_amount(value)
    return value.isoformat() if isinstance(value, datetime) else value


def cleared(clear: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, and null for what is removed; Failure for a setting that is in both."""
    body = written(values)
    for name in clear:
        if name in body:
            raise Failure(f"{name} cannot be set and cleared at once")
        body[name] = None
    return body

"""`gateway calls`: list · cancel: the calls that run now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gateway.admin.actor import login_name
from gateway.cli.output import note, print_json, print_record, print_table
from gateway.cli.server_option import remotable
from gateway.cli.session import either
from gateway.cli.values import WholeNumber
from gateway.runtime.local_socket import CANCEL, LIST, CallsRequest, LocalClient

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.config.settings import Settings

COLUMNS = (
    "started",
    "seconds",
    "request_id",
    "account",
    "key",
    "model",
    "provider",
    "endpoint",
    "tokens_out",
    "cost",
    "held",
    "machine",
)
MOST = 1000


@click.group()
def command() -> None:
    """The calls that run now on all machines with the store: list and cancel."""


@command.command("list")
@click.option("--account", default="", metavar="A", help="Only calls of this account.")
@click.option(
    "--limit", type=WholeNumber(1, MOST), default=MOST, show_default=True, metavar="N", help="The oldest N calls."
)
@remotable
def list_(settings: Settings, account: str, limit: int, as_json: bool) -> None:
    """The running calls, oldest first, with what was delivered so far."""

    async def there(client: AdminClient) -> Any:
        return await client.get("calls", account=account or None, limit=limit)

    found = _ask(settings, LIST, there, account=account, limit=limit)
    if as_json:
        print_json(found["data"])
    else:
        print_table(COLUMNS, found["data"])
    if found["silent_workers"]:
        note(f"workers that do not answer, whose calls are missing: {found['silent_workers']}")
    if found.get("silent_machines"):  # a server of an older release has none
        note(f"machines that do not answer, whose calls are missing: {found['silent_machines']}")


@command.command()
@click.argument("request_id")
@remotable
def cancel(settings: Settings, request_id: str, as_json: bool) -> None:
    """End a running call: its client gets an error, and what was delivered is charged."""

    async def there(client: AdminClient) -> Any:
        return await client.post("calls", request_id, "cancel")

    print_record(_ask(settings, CANCEL, there, request_id=request_id), as_json=as_json)


def _ask(settings: Settings, name: str, there: Callable[[AdminClient], Awaitable[Any]], **request: Any) -> Any:
    """The document from the server, or from the console process of this machine's gateway."""

    def here() -> Any:
        payload = msgspec.msgpack.encode(CallsRequest(login=login_name(), **request))
        return msgspec.json.decode(asyncio.run(LocalClient(settings.data_dir).ask(name, payload)))

    return either(here, there)

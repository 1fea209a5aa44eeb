"""`gateway calls`: list · cancel: the calls that run now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gateway.cli.output import note, print_json, print_record, print_table
from gateway.cli.server_option import current_server, remotable
from gateway.cli.session import login_name
from gateway.config.settings import Settings
from gateway.runtime.local_requests import CANCEL, LIST, CallsRequest
from gateway.runtime.local_socket import LocalClient

if TYPE_CHECKING:
    from gateway.cli.remote_session import RemoteSession

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
)
MOST = 1000


@click.group()
def command() -> None:
    """The calls that run now on the machine of the gateway: list and cancel."""


@command.command("list")
@click.option("--account", default="", metavar="A", help="Only calls of this account.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=MOST, show_default=True, metavar="N", help="The oldest N calls."
)
@remotable
def list_(settings: Settings, account: str, limit: int, as_json: bool) -> None:
    """The running calls, oldest first, with what was delivered so far."""

    async def over_server(session: RemoteSession) -> Any:
        return await session.client.get("calls", account=account or None, limit=limit)

    found = _ask(settings, LIST, over_server, account=account, limit=limit)
    if as_json:
        print_json(found["data"])
    else:
        print_table(COLUMNS, found["data"])
    if found["silent_workers"]:
        note(f"workers that do not answer, whose calls are missing: {found['silent_workers']}")


@command.command()
@click.argument("request_id")
@remotable
def cancel(settings: Settings, request_id: str, as_json: bool) -> None:
    """End a running call: its client gets an error, and what was delivered is charged."""

    async def over_server(session: RemoteSession) -> Any:
        return await session.client.post("calls", request_id, "cancel")

    print_record(_ask(settings, CANCEL, over_server, request_id=request_id), as_json=as_json)


def _ask(settings: Settings, name: str, over_server: Any, **request: Any) -> Any:
    """The document from the server, or from the console process of this machine's gateway."""
    if (server := current_server()) is not None:
        from gateway.cli.remote_session import run_remote

        return run_remote(server, over_server)
    payload = msgspec.msgpack.encode(CallsRequest(login=login_name(), **request))
    return msgspec.json.decode(asyncio.run(LocalClient(settings.data_dir).ask(name, payload)))

"""`gateway plugins`: what is loaded, what it can do, and why something is not; `gateway plugins new` begins one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.configuration import read_settings
from gateway.cli.output import print_rows
from gateway.cli.server_option import remotable_unread
from gateway.cli.session import either, run
from gateway.config.settings import PluginSettings, Settings
from gateway.errors import GatewayError
from gateway.plugin_template import PluginTemplate
from gateway.plugins.loader import load_plugins
from gateway.routing.circuit_sync import CircuitEvent, read_circuit_events
from gateway.setup.plugin_reports import plugin_forms
from gateway.store import StoreSetupError

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient

COLUMNS = ("name", "version", "source", "providers", "hooks", "capabilities", "state", "reason")


@click.group(invoke_without_command=True)
@remotable_unread
@click.pass_context
def command(ctx: click.Context, config: Path | None, demo: bool, as_json: bool) -> None:
    """What is loaded, its capabilities, and why something is not."""
    if ctx.invoked_subcommand is None:  # a subcommand needs no configuration
        print_rows(COLUMNS, either(lambda: _here(read_settings(config, demo=demo)), _there), as_json=as_json)


def _here(settings: Settings) -> list[dict[str, Any]]:
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # the table says why, once
    return plugin_forms(settings, _events(settings))


async def _there(client: AdminClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("plugins"))["data"]
    return found


def _events(settings: Settings) -> list[CircuitEvent]:
    """What the running gateway found out; nothing where there is no store yet, or none that answers."""
    if not settings.store.url and not settings.data_dir.is_dir():
        return []
    try:
        return run(settings, lambda session: read_circuit_events(session.store))
    except (GatewayError, StoreSetupError) as error:
        click.echo(f"gateway: whether plugins are quarantined is not known: {error}", err=True)
        return []


@command.command("new")
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), default=".", help="Where to put it; default: here.")
def new(name: str, folder: Path) -> None:
    """Write out a provider package called NAME: its tests pass, and its vendor is for you to replace."""
    try:
        template = PluginTemplate(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    if name in load_plugins(PluginSettings()).providers:
        raise click.BadParameter(f"a provider called {name!r} is there already", param_hint="NAME")
    place = template.write(folder)
    click.echo(f"{place}: next, pip install -e '{place}[test]' && pytest {place}")

"""`gateway plugins`: what is loaded, what it can do, and why something is not; `gateway plugins new` begins one."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import click
import msgspec

from gateway.cli.configuration import config_option, demo_option, json_option, read_settings
from gateway.cli.output import print_rows
from gateway.cli.session import run
from gateway.config.secret_references import secret_texts
from gateway.config.settings import PluginSettings, Settings
from gateway.errors import GatewayError
from gateway.plugin_template import PluginTemplate
from gateway.plugins.loader import PluginReport, load_plugins
from gateway.redaction import hide
from gateway.routing.circuit_sync import CircuitEvent, read_circuit_events
from gateway.store import StoreSetupError

COLUMNS = ("name", "version", "source", "providers", "capabilities", "state", "reason")


@click.group(invoke_without_command=True)
@json_option
@config_option
@demo_option
@click.pass_context
def command(ctx: click.Context, config: Path | None, demo: bool, as_json: bool) -> None:
    """What is loaded, its capabilities, and why something is not."""
    if ctx.invoked_subcommand is None:  # a subcommand needs no configuration
        show(read_settings(config, demo=demo), as_json)


def show(settings: Settings, as_json: bool) -> None:
    """Print the reports."""
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # the table says why, once
    reports = load_plugins(settings.plugins).reports
    quarantine(reports, settings, _events(settings), time.time())
    hidden = secret_texts(settings)
    forms = [msgspec.to_builtins(report) | {"reason": hide(report.reason, hidden)} for report in reports]
    print_rows(COLUMNS, forms, as_json=as_json)


def quarantine(reports: list[PluginReport], settings: Settings, events: list[CircuitEvent], now: float) -> None:
    """Mark the plugins whose code the running gateway leaves alone."""
    by_name = {report.name: report for report in reports}
    for item in events:
        provider = settings.providers.get(item.provider)
        report = by_name.get(provider.plugin) if provider is not None else None
        if report is not None and item.cause == "plugin":
            left = max(0.0, item.left(now))
            report.state = "quarantined"
            served = f" for {item.model} ({item.capability})" if item.model else ""
            report.reason = f"the code behind provider {item.provider} keeps failing{served}; probed in {left:.0f} s"


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

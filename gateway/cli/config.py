"""`gateway config`: show · diff · schema."""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING

import click

from gateway.cli.configuration import configured
from gateway.cli.output import print_json
from gateway.cli.root import Failure

if TYPE_CHECKING:
    from gateway.config.settings import Settings


@click.group()
def command() -> None:
    """The configuration: in effect, beside the running one, and as a schema."""


@command.command()
@configured
def show(settings: Settings, as_json: bool) -> None:
    """The configuration with all defaults and without secrets, as TOML."""
    text = _text(settings)
    if as_json:
        import tomllib

        print_json(tomllib.loads(text))
    else:
        click.echo(text, nl=False)


@command.command()
@configured
def diff(settings: Settings, as_json: bool) -> None:
    """What a reload would change in the running gateway; exit status 1 if anything."""
    import asyncio

    from gateway.errors import GatewayError
    from gateway.runtime.local_socket import CONFIGURATION, LocalClient

    try:
        running = asyncio.run(LocalClient(settings.data_dir).ask(CONFIGURATION, b"")).decode()
    except GatewayError as error:
        raise Failure(f"no gateway with a console answers on this machine for {settings.data_dir}: {error}") from None
    lines = difflib.unified_diff(
        running.splitlines(), _text(settings).splitlines(), "running", "file", lineterm="", n=2
    )
    changes = list(lines)
    if as_json:
        print_json({"changed": bool(changes), "diff": changes})
    else:
        click.echo("".join(f"{line}\n" for line in changes), nl=False)
    if changes:
        click.get_current_context().exit(1)


@command.command()
def schema() -> None:
    """The JSON Schema of a configuration, for editors, with the options of all installed plugins."""
    from gateway.config.settings import PluginSettings
    from gateway.plugins.loader import load_plugins
    from gateway.setup.configuration_schema import configuration_schema

    logging.getLogger("gateway").addHandler(logging.NullHandler())
    providers = load_plugins(PluginSettings()).providers
    print_json(configuration_schema({name: provider.Options for name, provider in providers.items()}))


def _text(settings: Settings) -> str:
    from gateway.setup.effective_configuration import effective_configuration

    return effective_configuration(settings)

"""The options every command shares, and the settings they lead to.

`@configured` gives a command `--json`, `--config` and `--demo`, and hands it the `Settings`. `gateway config` is here:
show · diff · schema.
"""

from __future__ import annotations

import difflib
import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from gateway.cli.output import print_json
from gateway.cli.root import Failure

if TYPE_CHECKING:
    from gateway.config.settings import Settings

P = ParamSpec("P")

OF_A_RESTORE = ("restore.json", "restoring")  # in data_dir while a restore runs, or after it was interrupted
NO_CONFIG = (
    "no configuration: give --config FILE, set GATEWAY_CONFIG, or make ./gateway.toml or /etc/gateway/gateway.toml;"
    " --demo needs none"
)

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Configuration file; default $GATEWAY_CONFIG, ./gateway.toml, /etc/gateway/gateway.toml.",
)
demo_option = click.option("--demo", is_flag=True, help="Without a file: what `gateway serve --demo` runs on.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
archive_option = click.option(
    "--archive",
    "archives",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="An archive file of an older version; repeat it for several, oldest first.",
)


def configured(function: Callable[Concatenate[Settings, P], None]) -> Callable[..., None]:
    """Add `--json`, `--config` and `--demo` to a command, and call it with the settings first and `as_json`."""

    @json_option
    @config_option
    @demo_option
    @functools.wraps(function)
    def command(*args: Any, config: Path | None, demo: bool, **options: Any) -> None:
        function(read_settings(config, demo=demo), *args, **options)

    return command


def read_settings(config: Path | None, *, demo: bool) -> Settings:
    """The settings of the file that is meant; with `demo` and no file named, the demo's own."""
    from gateway.config.loader import demo_settings, load

    settings = demo_settings() if demo and config is None else load(config_path(config), demo=demo)
    finish_restore(settings)
    return settings


def finish_restore(settings: Settings) -> None:
    """Finish what an interrupted `gateway restore` has left; Failure while one runs."""
    if not any(os.path.exists(settings.data_dir / name) for name in OF_A_RESTORE):  # noqa: PTH110 - False without a permission
        return
    import asyncio

    from gateway.backup.replacement import finish_interrupted
    from gateway.cli.output import note

    if asyncio.run(finish_interrupted(settings)):
        note("finished a restore that was interrupted")
    else:
        note("removed what an interrupted restore had left: the data are as before it")


def config_path(config: Path | None) -> Path:
    """The file that is meant."""
    from gateway.config.loader import find_config

    path = find_config(config)
    if path is None:
        raise Failure(NO_CONFIG)
    return path


# `gateway config` ---------------------------------------------------------------------------------------------------


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
    plugins = load_plugins(PluginSettings())
    providers = {name: provider.Options for name, provider in plugins.providers.items()}
    print_json(configuration_schema(providers, {name: hook.Options for name, hook in plugins.hooks.items()}))


def _text(settings: Settings) -> str:
    from gateway.setup.effective_configuration import effective_configuration

    return effective_configuration(settings)

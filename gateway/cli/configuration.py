"""The options every command shares, and the settings they lead to.

`@configured` gives a command `--json`, `--config` and `--demo`, and hands it the `Settings`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import click

from gateway.cli.root import Failure
from gateway.config.loader import demo_settings, find_config, load
from gateway.config.settings import Settings

P = ParamSpec("P")

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
    if demo and config is None:
        return demo_settings()
    return load(config_path(config), demo=demo)


def config_path(config: Path | None) -> Path:
    """The file that is meant."""
    path = find_config(config)
    if path is None:
        raise Failure(NO_CONFIG)
    return path

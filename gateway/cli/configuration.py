"""The options every command shares, and the settings they lead to.

`@configured` gives a command `--json`, `--config` and `--demo`, and hands it the `Settings`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

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

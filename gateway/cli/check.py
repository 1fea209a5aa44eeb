"""`gateway check`: everything that would keep the gateway from serving as configured, found in one go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gateway.cli.configuration import config_path, read_settings
from gateway.cli.output import note, print_json
from gateway.cli.server_option import only_here, remotable_unread
from gateway.cli.session import either
from gateway.config.toml_reader import SettingsError, SettingsProblem

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient


@click.command()
@remotable_unread
@click.option("--offline", is_flag=True, help="Check the file and the plugins alone: no secret and no store is read.")
@click.option("--force", is_flag=True, help="Only warn of accounts whose group the configuration lacks.")
@click.option("--live", is_flag=True, help="Also start and close each provider, and reach the storage of files.")
@click.pass_context
def command(
    ctx: click.Context, /, config: Path | None, demo: bool, offline: bool, as_json: bool, force: bool, live: bool
) -> None:
    """Validate the configuration, the plugins and the store; name file and key of each problem."""
    only_here(live=live)
    if live and offline:
        raise click.UsageError("--live starts the providers, and --offline reads no secret: give one of them")

    def here() -> Any:
        from gateway.setup.configuration_check import CheckOptions, check_configuration

        logging.getLogger("gateway").addHandler(logging.NullHandler())  # the findings say it, once
        file = None if demo and config is None else config_path(config)
        if not offline:
            with contextlib.suppress(SettingsError):  # a finding of the check
                read_settings(config, demo=demo)  # finishes an interrupted restore
        options = CheckOptions(demo=demo, offline=offline, force=force, live=live)
        return msgspec.to_builtins(asyncio.run(check_configuration(file, options)))

    async def there(client: AdminClient) -> Any:
        return await client.post("configuration", "check", body={"offline": offline, "force": force})

    findings = either(here, there)
    if findings["models"] is not None:
        note(f"models: {findings['models']}, providers: {findings['providers']}, groups: {findings['groups']}")
    for fault in findings["faults"]:
        note(str(SettingsProblem(**fault)))
    for text in findings["warnings"]:
        note(f"warning: {text}")
    if as_json:
        print_json(findings)
    elif findings["ok"]:
        click.echo(f"{findings['config'] or 'demo'}: ok")
    ctx.exit(0 if findings["ok"] else 1)

"""`gateway init`: writes a first configuration from what is found on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path

import click

from gateway.admin.configuration_check import CheckOptions, check_configuration
from gateway.admin.first_configuration import first_configuration
from gateway.admin.found_providers import find_providers
from gateway.cli.configuration import json_option
from gateway.cli.output import note, print_json
from gateway.cli.root import Failure
from gateway.config.loader import CONFIG_PLACES


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=CONFIG_PLACES[0],
    metavar="FILE",
    help="The file to write; default ./gateway.toml.",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@json_option
@click.pass_context
def command(ctx: click.Context, config: Path, force: bool, as_json: bool) -> None:
    """Write a first configuration from the keys and model servers that are here, check it, name the next command."""
    if config.exists() and not force:
        raise Failure(f"{config} exists; say --force to overwrite it")
    found = asyncio.run(find_providers(os.environ))
    _write(config, first_configuration(found), force=force)
    for one in found:
        note(f"{one.why}; models: {', '.join(one.models) or 'none yet'}")
    if not found:
        note("no key and no model server was found: the file has a provider that makes up answers")
    findings = asyncio.run(check_configuration(config, CheckOptions()))
    for line in (*map(str, findings.faults), *(f"warning: {text}" for text in findings.warnings)):
        note(line)
    following = f"gateway serve --config {shlex.quote(str(config))}"
    if as_json:
        providers = [{"name": one.name, "why": one.why, "models": list(one.models)} for one in found]
        print_json({"file": str(config), "ok": findings.ok, "providers": providers, "next": following})
    else:
        click.echo(f"{config} is written. Next: {following}" if findings.ok else f"{config} is written; mend it first.")
    ctx.exit(0 if findings.ok else 1)


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Failure(f"{path} exists; say --force to overwrite it") from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None

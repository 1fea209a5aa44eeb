"""`gateway init`: writes a first configuration from what is found on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path

import click

from gateway.cli.configuration import json_option
from gateway.cli.output import note, print_json
from gateway.cli.root import Failure
from gateway.config.loader import CONFIG_PLACES
from gateway.setup.configuration_check import CheckOptions, check_configuration
from gateway.setup.first_configuration import first_configuration
from gateway.setup.found_providers import find_providers
from gateway.setup.offered_providers import offers

LAST_WORDS = """\
{config} is written. Next: {serve}
Then make yourself the first operator of the console. This prints a link that signs you in:
  {operator}"""


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
    offered = offers(asyncio.run(find_providers(os.environ)))
    _write(config, first_configuration(offered), force=force)
    for one in offered:
        note(f"{one.found.why}; models: {', '.join(one.models) or 'none yet'}")
        for text in one.notes:
            note(text)
    if not offered:
        note("no key and no model server was found: the file has a provider that makes up answers")
    findings = asyncio.run(check_configuration(config, CheckOptions()))
    for line in (*map(str, findings.faults), *(f"warning: {text}" for text in findings.warnings)):
        note(line)
    file = shlex.quote(str(config))
    serve, operator = f"gateway serve --config {file}", f"gateway users create EMAIL --operator --config {file}"
    if as_json:
        providers = [{"name": one.name, "why": one.found.why, "models": list(one.models)} for one in offered]
        document = {"file": str(config), "ok": findings.ok, "providers": providers}
        print_json({**document, "next": serve, "operator": operator})
    elif findings.ok:
        click.echo(LAST_WORDS.format(config=config, serve=serve, operator=operator))
    else:
        click.echo(f"{config} is written; mend it first.")
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

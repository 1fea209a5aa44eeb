"""`python -m gateway.testing`: the commands for authors of plugins and servers."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit

import click
import msgspec

from gateway.config.secret import Secret, SecretError

EXTRA = "pip install 'model-gateway[conformance]' installs the packages with the classes of the standards"


class NothingChecked(click.ClickException):
    """Ends the command with one line and exit status 2."""

    exit_code = 2


@click.group()
def commands() -> None:
    """Checks for authors of plugins and servers."""


@commands.command()
@click.option("--base-url", required=True, metavar="URL", help="The address, as OpenAI's clients expect it: …/v1.")
@click.option(
    "--key", default="env:OPENAI_API_KEY", show_default=True, help="The API key, env:NAME or file:PATH of it."
)
@click.option("--model", required=True, help="A model with tools and images; for --api embeddings, one with vectors.")
@click.option("--api", "apis", multiple=True, metavar="NAME", help="Check only this API; may be repeated.")
@click.option("--limit", default=1024, show_default=True, type=click.IntRange(16), help="Most output tokens an answer.")
@click.option("--timeout", default=60.0, show_default=True, type=click.FloatRange(0.1), help="Seconds for one answer.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def conformance(
    ctx: click.Context,
    /,
    base_url: str,
    key: str,
    model: str,
    apis: tuple[str, ...],
    limit: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Check a server by the situations of the standards that it speaks.

    APIs: responses, websocket, chat, messages, gemini, models, and embeddings, which runs only if it is named. Each
    situation is one to three short requests. Exit status: 0 if all hold, 1 if some do not, 2 if nothing was checked.
    """
    try:
        from gateway.testing.servers import client, report, run, situations
        from gateway.testing.standards.classes import Missing
    except ModuleNotFoundError as error:
        raise NothingChecked(f"The package {error.name} is missing: {EXTRA}") from None
    wanted = apis or situations.USUAL
    unknown = sorted(set(wanted) - set(situations.APIS))
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: it is one of {', '.join(situations.APIS)}", param_hint="--api")
    if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname:
        raise click.BadParameter("it begins with http:// or https://", param_hint="--base-url")
    server = client.Server(base_url, _revealed(key), model, limit, timeout)
    chosen = [one for one in situations.SITUATIONS if one.api in wanted]
    try:
        outcomes = asyncio.run(
            run.check_server(server, chosen, (lambda _: None) if as_json else lambda one: click.echo(report.line(one)))
        )
    except (client.Unreachable, Missing) as error:
        raise NothingChecked(str(error)) from None
    if as_json:
        click.echo(msgspec.json.encode(report.document(base_url, model, outcomes)))
    else:
        click.echo(report.summary(outcomes))
    ctx.exit(0 if report.held(outcomes) == len(outcomes) else 1)


def _revealed(key: str) -> str:
    try:
        return Secret.parse(key, literals=True).reveal()
    except SecretError as error:
        raise click.BadParameter(str(error), param_hint="--key") from None


if __name__ == "__main__":
    sys.exit(commands(prog_name="python -m gateway.testing"))

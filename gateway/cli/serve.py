"""`gateway serve`."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.configuration import config_option, config_path, read_settings


@click.command()
@config_option
@click.option(
    "--demo", is_flag=True, help="Loopback, embedded store, the built-in fake provider, a key to try it with."
)
@click.option(
    "--accept-empty-store",
    is_flag=True,
    help="Serve on a store that has lost its data: it gets a new identity, and data_dir belongs to it from then on.",
)
@click.pass_context
def command(ctx: click.Context, config: Path | None, demo: bool, accept_empty_store: bool) -> None:
    """Run the gateway until SIGTERM, then drain.

    SIGHUP reads the configuration again without dropping a stream.
    """
    path = None if demo and config is None else config_path(config)
    settings = read_settings(path, demo=demo)
    from gateway.runtime.supervisor import run

    ctx.exit(run(settings, config_path=path, demo=demo, accept_empty_store=accept_empty_store))

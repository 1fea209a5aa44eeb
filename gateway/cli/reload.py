"""`gateway reload`: makes the running gateway of this machine read its configuration again."""

from __future__ import annotations

import os
import signal

import click

from gateway.accounts.group_use import group_use, missing_groups
from gateway.cli.configuration import configured
from gateway.cli.output import note, print_json
from gateway.cli.root import Failure
from gateway.cli.session import Session, run
from gateway.config.settings import Settings
from gateway.runtime.pid_file import running_pid


@click.command()
@click.option("--force", is_flag=True, help="Also if accounts are in a group that the configuration lacks.")
@configured
def command(settings: Settings, force: bool, as_json: bool) -> None:
    """Check the configuration and let the running gateway use it; its log says when it does."""
    if not settings.file:
        raise Failure("the demo has no configuration file to read again")
    pid = running_pid(settings.data_dir)
    if pid is None:
        raise Failure(f"no gateway runs on this machine with {settings.data_dir}")
    if not force:
        _check_groups(settings)
    os.kill(pid, signal.SIGUSR1 if force else signal.SIGHUP)
    if as_json:
        print_json({"pid": pid, "forced": force})
    else:
        note(f"asked process {pid} to reload; its log says when it has")


def _check_groups(settings: Settings) -> None:
    async def work(session: Session) -> dict[str, str]:
        return missing_groups(await group_use(session.store), settings.groups)

    missing = run(settings, work)
    if missing:
        raise Failure("\n".join(f"{text}, or say --force" for text in missing.values()))

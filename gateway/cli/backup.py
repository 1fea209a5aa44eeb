"""`gateway backup`: the whole deployment in a folder."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from gateway.cli.configuration import configured
from gateway.cli.output import note, print_record
from gateway.cli.session import Session, run
from gateway.config.settings import Settings


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--with-pepper", is_flag=True, help="Also the pepper; with such a backup its reader can test guesses of keys."
)
@configured
def command(settings: Settings, folder: Path, with_pepper: bool, as_json: bool) -> None:
    """Write the database, the store and this machine's journals into DIR, which is new or empty."""

    async def work(session: Session) -> dict[str, object]:
        from gateway.backup.backup import make_backup

        done = await make_backup(settings, session.store, folder, with_pepper=with_pepper)
        form: dict[str, object] = msgspec.to_builtins(done)
        return form

    print_record(run(settings, work), as_json=as_json)
    if not with_pepper:
        note("the pepper is not in the backup; without it no key works, so keep it elsewhere")
    note("the configuration and its secrets are not in the backup")

"""`gateway backup`: the whole deployment in a folder, and the proof that it can be restored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gateway.cli.configuration import configured
from gateway.cli.output import Progress, note, print_record
from gateway.cli.session import run

if TYPE_CHECKING:
    from gateway.backup.verify import Verified
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--with-pepper", is_flag=True, help="Also the pepper; with such a backup its reader can test guesses of keys."
)
@click.option("--verify", is_flag=True, help="Then restore the backup into a temporary place, and compare.")
@click.option("--verify-only", is_flag=True, help="Make no backup: restore and compare the one that is in DIR.")
@configured
@click.pass_context
def command(
    ctx: click.Context,
    settings: Settings,
    folder: Path,
    with_pepper: bool,
    verify: bool,
    verify_only: bool,
    as_json: bool,
) -> None:
    """Write the database, the store and this machine's journals into DIR, which is new or empty."""
    if verify_only and (verify or with_pepper):
        raise click.UsageError("--verify-only makes no backup: give neither --verify nor --with-pepper")
    form = {} if verify_only else _make(settings, folder, with_pepper=with_pepper)
    verified = _verify(settings, folder) if verify or verify_only else None
    if verified is not None:
        form |= _form(verified)
    print_record(form | {"verified": verified is not None}, as_json=as_json)
    if not form["pepper"]:
        note("the pepper is not in the backup; without it no key works, so keep it elsewhere")
    note("the configuration and its secrets are not in the backup")
    if verified is not None:
        _note(verified)
        ctx.exit(0 if verified.audit.clean else 1)


def _make(settings: Settings, folder: Path, *, with_pepper: bool) -> dict[str, Any]:
    async def work(session: StoreSession) -> dict[str, Any]:
        from gateway.backup.backup import make_backup

        with Progress() as progress:
            made = await make_backup(settings, session.store, folder, with_pepper=with_pepper, progress=progress)
        form: dict[str, Any] = msgspec.to_builtins(made)
        return form

    return run(settings, work)


def _verify(settings: Settings, folder: Path) -> Verified:
    from gateway.backup.verify import verify_backup

    with Progress() as progress:
        return asyncio.run(verify_backup(settings, folder, progress))


def _form(verified: Verified) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.to_builtins(verified)
    del form["audit"]
    return form


def _note(verified: Verified) -> None:
    for mismatch in verified.audit.mismatches:
        note(f"audit: {mismatch.account}: {mismatch.rule}: expected {mismatch.expected}, found {mismatch.found}")
    audited = f"audited accounts: {verified.audit.accounts}, mismatches: {len(verified.audit.mismatches)}"
    note(f"restored into a temporary place and compared: everything is as in the backup; {audited}")

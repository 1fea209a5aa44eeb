"""`gateway users links`: sign-in links for many users, in a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.admin_client import ServerError
from gateway.cli.admin_requests import AdminRequests
from gateway.cli.ask import ask
from gateway.cli.output import note, print_json
from gateway.cli.private_csv import private_csv
from gateway.cli.root import Failure
from gateway.cli.server_option import remotable
from gateway.errors import InvalidValue, NotFound
from gateway.people.many_links import COLUMNS, FoundUser, active_users, emails_in

if TYPE_CHECKING:
    from gateway.config.settings import Settings


@click.command()
@click.argument("emails", nargs=-1, metavar="EMAIL…")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE.csv",
    help="Also the users in the column `email` of this file, such as that of `gateway import users`.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="A new file for the links.",
)
@remotable
def links(settings: Settings, emails: tuple[str, ...], source: Path | None, out: Path, as_json: bool) -> None:
    """Write a link for each user with which they sign in once; earlier links of these users end."""
    wanted = list(dict.fromkeys([*emails, *(_emails_in(source) if source is not None else ())]))
    if not wanted:
        raise click.UsageError("name users, or a file with --from")

    async def work(admin: AdminRequests) -> int:
        found = await active_users(partial(_find, admin), wanted)
        with private_csv(out, COLUMNS, what="links", work="command") as write:
            for email in found.values():  # not by the id: the link is for the person with this address
                new = await admin.post("users", email, "link")
                write((new["email"], new["name"], new["link"]))
        return len(found)

    made = ask(settings, work)
    if as_json:
        print_json({"links": made, "file": str(out)})
    note(f"links: {made}, in {out}; each works once, for 24 hours. Hand each to its user, and delete the file")


def _emails_in(source: Path) -> list[str]:
    """The e-mails in the column `email`, each once."""
    try:
        text = source.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failure(f"{source} is no CSV in UTF-8: {error}") from None
    try:
        return emails_in(str(source), text)
    except InvalidValue as error:
        raise Failure(error.message) from None


async def _find(admin: AdminRequests, email: str) -> FoundUser:
    try:
        user = await admin.get("users", email)
    except ServerError as error:
        raise NotFound(error.message) if error.status in (400, 404) else error from None
    return FoundUser(user["id"], user["state"])

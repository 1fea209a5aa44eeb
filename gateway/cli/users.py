"""`gateway users`: create · list · show · edit · prove · disable · erase · member · limit · export · invite · …"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import click

from gateway.admin.actor import ACCOUNT_ROLES, SITE_ROLES, AccountRole, SiteRole
from gateway.cli.admin_requests import AdminRequests, cleared, written
from gateway.cli.ask import ask
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.server_option import remotable
from gateway.cli.user_links import links
from gateway.cli.values import AMOUNT, NAMES, PERIODS

if TYPE_CHECKING:
    from gateway.config.settings import Settings

Form = dict[str, Any]

COLUMNS = ("email", "name", "role", "state", "proved", "accounts", "created")
SESSIONS = ("id", "created", "last_seen", "expires", "address", "user_agent")
IDENTITIES = ("issuer", "created", "used")
INVITATIONS = ("id", "email", "account", "role", "site_role", "created_by", "expires")

PERMANENT = "A role that a provider's claims give stays without them, and counts for every way to sign in."

site_role = click.Choice(SITE_ROLES)
account_role = click.Choice(ACCOUNT_ROLES)


@click.group()
def command() -> None:
    """People who sign in: create, change, invite, export, erase."""


command.add_command(links)


@command.command()
@click.argument("email")
@click.option("--name", default="", metavar="N", help="What the person is called.")
@click.option("--operator", "role", flag_value="operator", help="The person may do everything.")
@click.option("--viewer", "role", flag_value="viewer", help="The person may read everything.")
@remotable
def create(settings: Settings, email: str, name: str, role: SiteRole | None, as_json: bool) -> None:
    """Add a user, and print a link with which they sign in once and set a password."""

    body = {"email": email, "name": name, "role": role or "none"}
    _print_link(ask(settings, lambda admin: admin.post("users", body=body)), as_json=as_json)


@command.command("list")
@click.option("--unproved", is_flag=True, help="Only users whose e-mail address is not proved.")
@remotable
def list_(settings: Settings, unproved: bool, as_json: bool) -> None:
    """All users, by e-mail."""

    proved = "no" if unproved else None
    print_rows(COLUMNS, ask(settings, lambda admin: admin.pages("users", proved=proved)), as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def show(settings: Settings, email: str, as_json: bool) -> None:
    """One user."""
    print_record(ask(settings, lambda admin: admin.get("users", email)), as_json=as_json)


@command.command()
@click.argument("email")
@click.option("--email", "new_email", metavar="EMAIL", help="The new e-mail address.")
@click.option("--name", metavar="N", help="What the person is called.")
@click.option("--role", type=site_role, help="The role on the site.")
@click.option("--permanent", is_flag=True, help=PERMANENT)
@click.option("--no-second-factor", is_flag=True, help="Ask for no code any more, for someone who lost their phone.")
@remotable
def edit(
    settings: Settings,
    email: str,
    new_email: str | None,
    name: str | None,
    role: SiteRole | None,
    permanent: bool,
    no_second_factor: bool,
    as_json: bool,
) -> None:
    """Change a user."""
    if permanent and role is None:
        raise click.UsageError("--permanent goes with --role")
    changes = written({"email": new_email, "name": name, "role": role, "permanent": permanent or None})
    if no_second_factor:
        changes["second_factor"] = "removed"
    if not changes:
        raise click.UsageError("say what is to change")

    async def work(admin: AdminRequests) -> Form:
        return await _noting_tokens(admin, email, lambda user: admin.patch("users", user, body=changes))

    print_record(ask(settings, work), as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def prove(settings: Settings, email: str, as_json: bool) -> None:
    """Mark the e-mail address of a user as proved: you know that this person, and nobody else, is the user."""

    print_record(ask(settings, lambda admin: admin.post("users", email, "prove")), as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def disable(settings: Settings, email: str, as_json: bool) -> None:
    """Keep a user from signing in, disable their API keys, end sessions, links, invitations and admin tokens."""

    async def work(admin: AdminRequests) -> Form:
        return await _noting_tokens(admin, email, lambda user: admin.post("users", user, "disable"))

    print_record(ask(settings, work), as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def enable(settings: Settings, email: str, as_json: bool) -> None:
    """Undo `disable`; the user's API keys work again."""

    print_record(ask(settings, lambda admin: admin.post("users", email, "enable")), as_json=as_json)


@command.command()
@click.argument("email")
@click.option("--yes", is_flag=True, help="Do it: it cannot be undone.")
@remotable
def erase(settings: Settings, email: str, yes: bool, as_json: bool) -> None:
    """Erase all that is stored about a person, and revoke their API keys; ledger lines keep their amounts."""
    if not yes:
        raise click.UsageError("erasing cannot be undone; say --yes")

    async def work(admin: AdminRequests) -> Form:
        return await _noting_tokens(admin, email, lambda user: admin.delete("users", user))

    print_record(ask(settings, work), as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def link(settings: Settings, email: str, as_json: bool) -> None:
    """Print a new link with which a user signs in once and may set a password; earlier links end."""

    _print_link(ask(settings, lambda admin: admin.post("users", email, "link")), as_json=as_json)


@command.command()
@click.argument("email")
@click.option("--end", is_flag=True, help="End them all.")
@remotable
def sessions(settings: Settings, email: str, end: bool, as_json: bool) -> None:
    """Where a user is signed in, newest first."""

    _print_ways(settings, email, "sessions", SESSIONS, end=end, as_json=as_json)


@command.command()
@click.argument("email")
@click.option("--end", is_flag=True, help="End them all.")
@remotable
def identities(settings: Settings, email: str, end: bool, as_json: bool) -> None:
    """The identity providers that a user is connected with."""

    _print_ways(settings, email, "identities", IDENTITIES, end=end, as_json=as_json)


@command.command()
@click.argument("email")
@click.argument("account")
@click.argument("role", type=click.Choice((*ACCOUNT_ROLES, "none")), metavar="ROLE")
@click.option("--permanent", is_flag=True, help=PERMANENT)
@remotable
def member(
    settings: Settings, email: str, account: str, role: AccountRole | Literal["none"], permanent: bool, as_json: bool
) -> None:
    """Make a user an `owner` or a `member` of ACCOUNT, or with `none` take them out and revoke their keys of it."""

    if permanent and role == "none":
        raise click.UsageError("--permanent goes with a role")
    path, body = ("accounts", account, "members", email), written({"role": role, "permanent": permanent or None})

    async def work(admin: AdminRequests) -> Form:
        await (admin.delete(*path) if role == "none" else admin.put(*path, body=body))
        return _form(await admin.get("users", email))

    print_record(ask(settings, work), as_json=as_json)


@command.command()
@click.argument("email")
@click.argument("account")
@click.option("--budget", type=AMOUNT, metavar="AMOUNT", help="What all keys of the user may spend in ACCOUNT.")
@click.option("--every", type=click.Choice(PERIODS), help="The period of the budget, in UTC.")
@click.option("--clear", type=NAMES, metavar="LIMIT,…", help="Remove these limits: budget, every.")
@remotable
def limit(
    settings: Settings,
    email: str,
    account: str,
    budget: int | None,
    every: Literal["month", "week", "day", "never"] | None,
    clear: list[str] | None,
    as_json: bool,
) -> None:
    """Set what a member may spend in ACCOUNT over all their keys; without an option, show it."""

    body, path = (
        cleared(clear or (), {"budget": budget, "every": every}, known=("budget", "every")),
        ("accounts", account, "members", email, "budget"),
    )
    budgets = ask(settings, lambda admin: admin.patch(*path, body=body) if body else admin.get(*path))
    print_record(budgets, as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def export(settings: Settings, email: str, as_json: bool) -> None:
    """Print all that is stored about a person, as one JSON document."""

    print_json(ask(settings, lambda admin: admin.get("users", email, "export")))


@command.command()
@click.argument("email")
@click.option("--account", metavar="A", help="To this account; without it, to the site.")
@click.option("--role", type=account_role, help="The role in the account; default member.")
@click.option("--site-role", type=site_role, help="The role on the site; default none.")
@click.option("--no-mail", is_flag=True, help="Send no e-mail, print the link.")
@remotable
def invite(
    settings: Settings,
    email: str,
    account: str | None,
    role: AccountRole | None,
    site_role: SiteRole | None,
    no_mail: bool,
    as_json: bool,
) -> None:
    """Invite a person by e-mail, or print the link to hand over. It works once, for 7 days."""
    if (role if account is None else site_role) is not None:
        raise click.UsageError("--role goes with --account, --site-role without")

    path = ("invitations",) if account is None else ("accounts", account, "invitations")
    body = {
        "email": email,
        "role": (site_role or "none") if account is None else (role or "member"),
        "mail": not no_mail,
    }
    new = ask(settings, lambda admin: admin.post(*path, body=body))
    if as_json:
        print_json(new)
    elif new["sent"]:
        note(f"sent to {new['email']}")
    else:
        note(f"hand this link to {new['email']}; it works once, for 7 days")
        click.echo(new["link"])


@command.command()
@click.option("--account", default="", metavar="A", help="Of this account; without it, of the site.")
@remotable
def invitations(settings: Settings, account: str, as_json: bool) -> None:
    """The invitations that are open, newest first."""
    path = ("accounts", account, "invitations") if account else ("invitations",)
    print_rows(INVITATIONS, ask(settings, lambda admin: admin.get(*path))["data"], as_json=as_json)


@command.command()
@click.argument("invitation_id")
@remotable
def withdraw(settings: Settings, invitation_id: str, as_json: bool) -> None:
    """End an open invitation."""
    print_record(ask(settings, lambda admin: admin.delete("invitations", invitation_id)), as_json=as_json)


async def _noting_tokens(admin: AdminRequests, email: str, change: Callable[[str], Awaitable[Any]]) -> Form:
    """Change the user, and say which admin tokens ended with it: only operators have made any.

    The change is called with the e-mail, not with the id: it is for the person with this address.
    """
    user = await admin.get("users", email)
    made = await _tokens_ending_with(admin, user["id"]) if user["role"] == "operator" else []
    result = await change(email)
    if made:
        valid = {token["id"] for token in await _tokens_ending_with(admin, user["id"])}
        if ended := [f"{token['name']} ({token['id']})" for token in made if token["id"] not in valid]:
            note(f"admin tokens that {email} had made have ended: {', '.join(ended)}")
    return _form(result)


async def _tokens_ending_with(admin: AdminRequests, user_id: str) -> list[Form]:
    """The active tokens that the user has made, or a token that they have made."""
    found, makers, size = await admin.pages("tokens"), {f"user:{user_id}"}, 0
    while size < len(makers):
        size = len(makers)
        makers |= {f"token:{token['id']}" for token in found if token["created_by"] in makers}
    return [token for token in found if token["created_by"] in makers and token["state"] == "active"]


def _print_ways(
    settings: Settings, email: str, kind: str, columns: tuple[str, ...], *, end: bool, as_json: bool
) -> None:
    """Print sessions or identities of a user, after ending them all if `end` is set."""

    async def work(admin: AdminRequests) -> list[Form]:
        if end:
            note(f"ended: {(await admin.delete('users', email, kind))['ended']}")
        found: list[Form] = (await admin.get("users", email, kind))["data"]
        return found

    print_rows(columns, ask(settings, work), as_json=as_json)


def _print_link(new: Form, *, as_json: bool) -> None:
    if as_json:
        print_json(new)
    else:
        note(f"hand this link to {new['email']}; it works once, for 24 hours")
        click.echo(new["link"])


def _form(document: Any) -> Form:
    form: Form = document
    return form

"""`gateway users`: create · list · show · edit · disable · enable · erase · member · limit · export · invite · …"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from gateway.admin.actor import ACCOUNT_ROLES, SITE_ROLES, AccountRole, SiteRole
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.people_session import PeopleSession, run_people
from gateway.cli.server_option import remotable
from gateway.cli.values import AMOUNT, NAMES, PERIODS
from gateway.config.settings import Settings

if TYPE_CHECKING:
    from gateway.admin.identities import Identity
    from gateway.admin.invitations import NewInvitation
    from gateway.admin.mail import Delivery
    from gateway.admin.member_budgets import MemberBudget
    from gateway.admin.sessions import Session
    from gateway.admin.sign_in_links import NewLink
    from gateway.admin.user_rows import User
    from gateway.admin.users import UserChanges

COLUMNS = ("email", "name", "role", "state", "accounts", "created")
SESSIONS = ("id", "created", "last_seen", "expires", "address", "user_agent")
IDENTITIES = ("issuer", "created", "used")
INVITATIONS = ("id", "email", "account", "role", "site_role", "created_by", "expires")

site_role = click.Choice(SITE_ROLES)
account_role = click.Choice(ACCOUNT_ROLES)


@click.group()
def command() -> None:
    """People who sign in: create, change, invite, export, erase."""


@command.command()
@click.argument("email")
@click.option("--name", default="", metavar="N", help="What the person is called.")
@click.option("--operator", "role", flag_value="operator", help="The person may do everything.")
@click.option("--viewer", "role", flag_value="viewer", help="The person may read everything.")
@remotable
def create(settings: Settings, email: str, name: str, role: SiteRole | None, as_json: bool) -> None:
    """Add a user, and print a link with which they sign in once and set a password."""

    async def work(session: PeopleSession) -> NewLink:
        user = await session.people.users.create(session.actor, email, name=name, role=role or "none")
        return await session.people.sign_in_links.create(session.actor, user.id)

    _print_link(run_people(settings, work), as_json=as_json)


@command.command("list")
@remotable
def list_(settings: Settings, as_json: bool) -> None:
    """All users, by e-mail."""

    async def work(session: PeopleSession) -> list[User]:
        found: list[User] = []
        while page := await session.people.users.list(session.actor, after=found[-1].email if found else ""):
            found += page
        return found

    print_rows(COLUMNS, [user.json_form() for user in run_people(settings, work)], as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def show(settings: Settings, email: str, as_json: bool) -> None:
    """One user."""
    _show(run_people(settings, lambda session: session.people.users.find(session.actor, email)), as_json=as_json)


@command.command()
@click.argument("email")
@click.option("--email", "new_email", metavar="EMAIL", help="The new e-mail address.")
@click.option("--name", metavar="N", help="What the person is called.")
@click.option("--role", type=site_role, help="The role on the site.")
@click.option("--no-second-factor", is_flag=True, help="Ask for no code any more, for someone who lost their phone.")
@remotable
def edit(
    settings: Settings,
    email: str,
    new_email: str | None,
    name: str | None,
    role: SiteRole | None,
    no_second_factor: bool,
    as_json: bool,
) -> None:
    """Change a user."""
    changes: UserChanges = {}
    if new_email is not None:
        changes["email"] = new_email
    if name is not None:
        changes["name"] = name
    if role is not None:
        changes["role"] = role
    if no_second_factor:
        changes["second_factor"] = False
    if not changes:
        raise click.UsageError("say what is to change")

    async def work(session: PeopleSession) -> User:
        return await session.people.users.edit(session.actor, await session.user_id(email), changes)

    _show(run_people(settings, work), as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def disable(settings: Settings, email: str, as_json: bool) -> None:
    """Keep a user from signing in, end their sessions, links and invitations, and disable their API keys."""

    async def work(session: PeopleSession) -> User:
        user = await session.people.users.disable(session.actor, await session.user_id(email))
        await session.store.note_doubts()
        return user

    _show(run_people(settings, work), as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def enable(settings: Settings, email: str, as_json: bool) -> None:
    """Undo `disable`; the user's API keys work again."""

    async def work(session: PeopleSession) -> User:
        user = await session.people.users.enable(session.actor, await session.user_id(email))
        await session.store.note_doubts()
        return user

    _show(run_people(settings, work), as_json=as_json)


@command.command()
@click.argument("email")
@click.option("--yes", is_flag=True, help="Do it: it cannot be undone.")
@remotable
def erase(settings: Settings, email: str, yes: bool, as_json: bool) -> None:
    """Erase all that is stored about a person, and revoke their API keys; ledger lines keep their amounts."""
    if not yes:
        raise click.UsageError("erasing cannot be undone; say --yes")

    async def work(session: PeopleSession) -> str:
        user_id = await session.user_id(email)
        await session.people.personal_data.erase(session.actor, user_id)
        await session.store.note_doubts()
        return user_id

    print_record({"id": run_people(settings, work), "state": "erased"}, as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def link(settings: Settings, email: str, as_json: bool) -> None:
    """Print a new link with which a user signs in once and may set a password; earlier links end."""

    async def work(session: PeopleSession) -> NewLink:
        return await session.people.sign_in_links.create(session.actor, await session.user_id(email))

    _print_link(run_people(settings, work), as_json=as_json)


@command.command()
@click.argument("email")
@click.option("--end", is_flag=True, help="End them all.")
@remotable
def sessions(settings: Settings, email: str, end: bool, as_json: bool) -> None:
    """Where a user is signed in, newest first."""

    async def work(session: PeopleSession) -> list[Session]:
        user_id = await session.user_id(email)
        if end:
            note(f"ended: {await session.people.sessions.end_all(session.actor, user_id)}")
        return await session.people.sessions.list(session.actor, user_id)

    print_rows(SESSIONS, [session.json_form() for session in run_people(settings, work)], as_json=as_json)


@command.command()
@click.argument("email")
@click.option("--end", is_flag=True, help="End them all.")
@remotable
def identities(settings: Settings, email: str, end: bool, as_json: bool) -> None:
    """The identity providers that a user is connected with."""

    async def work(session: PeopleSession) -> list[Identity]:
        user_id = await session.user_id(email)
        if end:
            note(f"ended: {await session.people.identities.end_all(session.actor, user_id)}")
        return await session.people.identities.list(session.actor, user_id)

    print_rows(IDENTITIES, [identity.json_form() for identity in run_people(settings, work)], as_json=as_json)


@command.command()
@click.argument("email")
@click.argument("account")
@click.argument("role", type=click.Choice((*ACCOUNT_ROLES, "none")), metavar="ROLE")
@remotable
def member(settings: Settings, email: str, account: str, role: AccountRole | Literal["none"], as_json: bool) -> None:
    """Make a user an `owner` or a `member` of ACCOUNT, or with `none` take them out and revoke their keys of it."""

    async def work(session: PeopleSession) -> User:
        user_id, memberships = await session.user_id(email), session.people.memberships
        if role == "none":
            user = await memberships.remove(session.actor, user_id, account)
            await session.store.note_doubts()
            return user
        return await memberships.set(session.actor, user_id, account, role)

    _show(run_people(settings, work), as_json=as_json)


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

    async def work(session: PeopleSession) -> MemberBudget:
        user_id, budgets = await session.user_id(email), session.people.member_budgets
        if budget is None and every is None and not clear:
            return await budgets.show(session.actor, user_id, account)
        changed = await budgets.change(session.actor, user_id, account, budget=budget, every=every, clear=clear or ())
        await session.store.note_doubts()
        return changed

    print_record(run_people(settings, work).json_form(), as_json=as_json)


@command.command()
@click.argument("email")
@remotable
def export(settings: Settings, email: str, as_json: bool) -> None:
    """Print all that is stored about a person, as one JSON document."""

    async def work(session: PeopleSession) -> dict[str, Any]:
        return await session.people.personal_data.export(session.actor, await session.user_id(email))

    print_json(run_people(settings, work))


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

    async def work(session: PeopleSession) -> tuple[NewInvitation, Delivery | None]:
        invitations, messages = session.people.invitations, session.people.messages
        if account is None:
            new = await invitations.to_site(session.actor, email, site_role or "none")
        else:
            new = await invitations.to_account(session.actor, email, account, role or "member")
        return new, await messages.invite_by_mail(new, wanted=not no_mail)

    new, delivery = run_people(settings, work)
    is_sent = delivery is not None and delivery.is_sent
    if delivery is not None and not is_sent:
        note(f"the e-mail could not be sent: {delivery.problem}")
    if as_json:
        print_json(new.invitation.json_form() | {"sent": is_sent, "link": None if is_sent else new.url})
    elif is_sent:
        note(f"sent to {new.invitation.email}")
    else:
        note(f"hand this link to {new.invitation.email}; it works once, for 7 days")
        click.echo(new.url)


@command.command()
@click.option("--account", default="", metavar="A", help="Of this account; without it, of the site.")
@remotable
def invitations(settings: Settings, account: str, as_json: bool) -> None:
    """The invitations that are open, newest first."""
    found = run_people(settings, lambda session: session.people.invitations.list(session.actor, account))
    print_rows(INVITATIONS, [invitation.json_form() for invitation in found], as_json=as_json)


@command.command()
@click.argument("invitation_id")
@remotable
def withdraw(settings: Settings, invitation_id: str, as_json: bool) -> None:
    """End an open invitation."""
    run_people(settings, lambda session: session.people.invitations.withdraw(session.actor, invitation_id))
    print_record({"id": invitation_id, "state": "withdrawn"}, as_json=as_json)


def _print_link(new: NewLink, *, as_json: bool) -> None:
    if as_json:
        print_json(new.user.json_form() | {"link": new.url})
    else:
        note(f"hand this link to {new.user.email}; it works once, for 24 hours")
        click.echo(new.url)


def _show(user: User, *, as_json: bool) -> None:
    print_record(user.json_form(), as_json=as_json)

"""Who may give access to a user, so that another than this user could sign in: the one rule for all such changes.

These are links and invitations that others than the holder of the address see, another address, and the end of the
second factor. The rule is asked when a link is made, and of links and invitations again when they are used, with the
rights that their maker has then. Links by e-mail and second steps have no maker: only the holder of the address, or of
the password, has them.
"""

from __future__ import annotations

from contextlib import suppress

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import ROLE_RANKS, Actor
from gateway.admin.granted import entered_by
from gateway.admin.user_rows import User
from gateway.database.people_tables import audit_events
from gateway.errors import Forbidden
from gateway.history.caller_addresses import has_called
from gateway.people.makers import maker_of
from gateway.people.proofs import has_been_entered
from gateway.people.role_rights import require_may_pass_on, require_role, require_role_rights


def require_entry(connection: Connection, actor: Actor, user: User) -> None:
    """Forbidden unless the actor may do and read all that the user may.

    Owners may give access to no member of an account. As a user who has signed in, called or been a member, one gets
    what is stored of the person: it needs what the export needs.
    """
    assert user.has_all_accounts, "a role that is not known is not checked"
    if actor.is_operator:
        return
    if user.role != "none":
        raise Forbidden("This needs an operator, because the user has a role on the site")
    for account, role in user.accounts.items():
        require_role_rights(actor, account, role, f"a user who is {role} of an account")
    if not (actor.may("read") and actor.may("users")) and _is_stored(connection, user):
        raise Forbidden(
            "For a user who has signed in, called or been a member this needs what the export of their data needs: "
            "the scopes 'read' and 'users'"
        )


def _is_stored(connection: Connection, user: User) -> bool:
    """Whether an export says more than who the user is: of sessions, calls, or accounts that the user has left."""
    if has_been_entered(connection, user) or has_called(connection, user.id):
        return True
    table = audit_events.c
    of_account = sa.select(table.id).where(table.object == f"user:{user.id}", table.account != "").limit(1)
    return connection.scalar(of_account) is not None


def maker_leads_into(connection: Connection, maker: str, issuer: str, user: User) -> bool:
    """Whether a link or invitation of this maker (`KIND:ID`) gives access to the user now; `issuer`: see `maker_of`."""
    with suppress(Forbidden):
        require_entry(connection, maker_of(connection, maker, issuer), user)
        return True
    return False


def maker_may_give(
    connection: Connection, maker: str, issuer: str, user: User | None, *, account: str, role: str, site_role: str
) -> bool:
    """Whether the maker of an invitation may give its role now; `user` is the invited one, who may not exist yet.

    What claims gave to the user is nothing that the maker may give.
    """
    actor = maker_of(connection, maker, issuer)
    user = None if user is None else entered_by(connection, user, "")
    before, site_before = (user.accounts.get(account, "none"), user.role) if user is not None else ("none", "none")
    with suppress(Forbidden):
        if account:
            require_role(actor, account, role, before=before)
            require_may_pass_on(connection, actor, role if role != before else "", account)
        elif ROLE_RANKS[site_role] > ROLE_RANKS[site_before]:
            actor.require_operator()
            require_may_pass_on(connection, actor, site_role)
        return True
    return False

"""New people who sign up by themselves: by an identity provider, or by a confirmed e-mail address.

`[console] signup` decides: with `closed` nobody, with `invite` those who have an open invitation, with `open` everybody
whose address is of `signup_domains`. A person to whom a provider's claims give something may always come. All of them
have proved their e-mail address before.

People who sign up by e-mail without an invitation are limited by network. The limit does not count people whom a
provider sends, or who are invited: an office has one address. The credits of new accounts are limited for the whole
site.
"""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.accounts import AccountAdmin
from gateway.admin.actor import by_configuration
from gateway.admin.identities import insert_identity
from gateway.admin.invitations import accounts_invited_to, use_invitations_of
from gateway.admin.memberships import put_membership
from gateway.admin.random_ids import new_id
from gateway.admin.sign_in_limits import SignInLimits
from gateway.admin.signup_credits import SignUpCredits
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id, user_of
from gateway.admin.users import insert_user, now
from gateway.config.console_settings import ConsoleSettings
from gateway.database.people_tables import users
from gateway.errors import AlreadyExists, SignInRefused

UNKNOWN = "No user of this gateway belongs to this sign-in. Ask your operator for an invitation"


class Newcomer(Struct, frozen=True, kw_only=True):
    """A person with a verified, normalised e-mail address who is not a user yet."""

    email: str
    name: str
    rule: str  # for the audit trail: `sign-up` or `oidc.NAME`
    address: str
    password_hash: str | None = None
    issuer: str = ""  # of an identity provider, or empty
    subject: str = ""
    is_expected: bool = False  # the claims give something


class Newcomers:
    """Decides who may come, and creates their users."""

    def __init__(
        self,
        transactions: Transactions,
        accounts: AccountAdmin,
        limits: SignInLimits,
        credits: SignUpCredits,
        console: ConsoleSettings,
    ) -> None:
        self._transactions = transactions
        self._accounts = accounts
        self._limits = limits
        self._credits = credits
        self._console = console

    async def may_come(self, email: str) -> bool:
        """Whether somebody with this address may become a user."""
        return self._is_open_for(email) or await self._is_invited(email)

    async def create(self, newcomer: Newcomer) -> User:
        """The new user; SignInRefused, AlreadyExists, SignInLimited.

        They get what they are invited to; without an invitation, an account of their own if the settings say so.
        """
        is_invited = not newcomer.is_expected and await self._is_invited(newcomer.email)
        if not newcomer.is_expected and not is_invited and not self._is_open_for(newcomer.email):
            raise SignInRefused(UNKNOWN, detail="unknown")
        if await self._transactions.read(is_user, newcomer.email):
            raise AlreadyExists("There is a user of this address already")
        if not newcomer.issuer and not is_invited:
            await self._limits.attempt("", newcomer.address, "newcomer", most=self._console.signup_limit)
        user_id, account = new_id("usr"), ""
        if self._gives_account and not newcomer.is_expected and not is_invited:
            # Before the user: a failure leaves an account without a member, and no user without an account.
            account = f"u-{user_id.partition('_')[2]}"
            actor, group = by_configuration(newcomer.rule, newcomer.address), self._console.signup_group
            await self._accounts.create(actor, account, group=group, balance=await self._credit())
        return await self._transactions.write(_create, newcomer, user_id, account)

    async def _credit(self) -> int:
        """The balance of a new account, in nano-units."""
        credit = self._console.signup_credit
        return credit if credit and await self._credits.take() else 0

    @property
    def _gives_account(self) -> bool:
        return self._console.signup == "open" and self._console.signup_account

    def _is_open_for(self, email: str) -> bool:
        domains = self._console.signup_domains
        return self._console.signup == "open" and (not domains or email.rpartition("@")[2] in domains)

    async def _is_invited(self, email: str) -> bool:
        """Whether an invitation counts without its link."""
        if self._console.signup == "closed":
            return False
        return bool(await self._transactions.read(accounts_invited_to, email))


def is_user(connection: Connection, email: str) -> bool:
    """Whether somebody with this address is a user, who may be disabled."""
    return user_of(connection, users.c.email == email) is not None


def _create(connection: Connection, newcomer: Newcomer, user_id: str, account: str) -> User:
    actor = by_configuration(newcomer.rule, newcomer.address)
    user = insert_user(connection, actor, newcomer.email, newcomer.name, "none", user_id=user_id)
    if newcomer.password_hash is not None:
        values = {"password_hash": newcomer.password_hash, "password_set_at": now()}
        connection.execute(users.update().where(users.c.id == user_id).values(values))
    if newcomer.subject:
        insert_identity(connection, user.actor(newcomer.address), user_id, newcomer.issuer, newcomer.subject)
    if account:
        put_membership(connection, actor, user, account, "owner")
    elif not newcomer.is_expected:
        use_invitations_of(connection, user, newcomer.address)
    return user_by_id(connection, user_id)

"""New people who sign up by themselves: by an identity provider, or by a confirmed e-mail address.

`[console] signup` decides: with `closed` nobody, with `invite` those who have an open invitation, with `open` everybody
whose address is of `signup_domains`. A person to whom a provider's claims give something may always come. All of them
have proved their e-mail address before.

An invitation of an operator counts at once. One of an owner or a program lets a person come, who decides about it
afterwards: nobody is added to an account, and misses one of their own, because somebody else has typed their address.
It lets people of other domains come, too, but they get no account of their own.

People who sign up by e-mail without an invitation, or who get an account of their own, are limited by network. The
limit does not count people whom a provider sends, or who are invited: an office has one address. The credits of new
accounts are limited for the whole site.

The user, the identity and the membership of a new account are one transaction, which only one of several sign-ins of
the same person does. It promises the account; the store opens it afterwards, once, whoever of them comes first. After a
failure in between, the next sign-in opens it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.accounts import AccountAdmin
from gateway.admin.actor import by_configuration
from gateway.admin.times import now
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id, user_of
from gateway.config.console_settings import ConsoleSettings
from gateway.database.people_tables import promised_accounts, users
from gateway.errors import AlreadyExists, SignInRefused
from gateway.ledger.scripts import load_script
from gateway.log import gateway_log
from gateway.people.accepting import use_invitations_of
from gateway.people.identities import insert_identity
from gateway.people.invitation_rows import accounts_invited_to, counting_without_acceptance
from gateway.people.memberships import put_membership
from gateway.people.proofs import Proof
from gateway.people.random_ids import new_id
from gateway.people.sign_in_limits import SignInLimits
from gateway.people.users import insert_user
from gateway.store.links import Links

UNKNOWN = "No user of this gateway belongs to this sign-in. Ask your operator for an invitation"
CREDITED_WITHIN = 86_400  # seconds after the first credit
CREDITED = "signup:credited"
_TAKE_CREDIT = load_script("signup_credit")


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

        They get what operators invite them to; without that, an account of their own if the settings say so. Only
        people for whom the sign-up is open get one, so that invitations by owners carry the credit to nobody else.
        """
        is_invited = not newcomer.is_expected and await self._is_invited(newcomer.email)
        if not newcomer.is_expected and not is_invited and not self._is_open_for(newcomer.email):
            raise SignInRefused(UNKNOWN, detail="unknown")
        if await self._transactions.read(is_user, newcomer.email):
            raise AlreadyExists("There is a user of this address already")
        gives_account = self._gives_account(newcomer) and not await self._joins(newcomer.email)
        is_limited = not newcomer.issuer and (gives_account or not is_invited)
        if is_limited:
            await self._limits.attempt("", newcomer.address, "newcomer", most=self._console.signup_limit)
        try:
            user = await self._transactions.write(_create, newcomer, new_id("usr"), gives_account)
        except AlreadyExists:  # at this moment, and counted there
            if is_limited:
                await self._limits.succeeded("", newcomer.address, "newcomer")
            raise
        if gives_account:
            await self.open_account(user.id, newcomer.address)
        return user

    async def open_account(self, user_id: str, address: str) -> None:
        """Open the account that was promised to a user, if it is not open yet. It may be repeated after a failure."""
        promised = await self._transactions.read(_promised, user_id)
        if promised is None:
            return
        account, actor = promised.account, by_configuration(promised.rule, address)
        with suppress(AlreadyExists):
            await self._accounts.require_free(account)
            group, balance = self._console.signup_group, await self._credit(account)
            await self._accounts.create(actor, account, group=group, balance=balance)
        await self._transactions.write(_forget_promise, user_id)

    async def _credit(self, account: str) -> int:
        """The balance of a new account, in nano-units."""
        credit = self._console.signup_credit
        return credit if credit and await self._credits.take(account) else 0

    def _gives_account(self, newcomer: Newcomer) -> bool:
        return self._console.signup_account and not newcomer.is_expected and self._is_open_for(newcomer.email)

    def _is_open_for(self, email: str) -> bool:
        domains = self._console.signup_domains
        return self._console.signup == "open" and (not domains or email.rpartition("@")[2] in domains)

    async def _is_invited(self, email: str) -> bool:
        """Whether an invitation lets a person come without its link."""
        if self._console.signup == "closed":
            return False
        return bool(await self._transactions.read(accounts_invited_to, email))

    async def _joins(self, email: str) -> bool:
        """Whether an invitation counts at once, so that the person needs no account of their own."""
        return bool(await self._transactions.read(counting_without_acceptance, email))


def is_user(connection: Connection, email: str) -> bool:
    """Whether somebody with this address is a user, who may be disabled."""
    return user_of(connection, users.c.email == email) is not None


def _promised(connection: Connection, user_id: str) -> Any:
    """A row with account and rule, or None."""
    table = promised_accounts.c
    return connection.execute(sa.select(table.account, table.rule).where(table.user_id == user_id)).one_or_none()


def _forget_promise(connection: Connection, user_id: str) -> None:
    connection.execute(promised_accounts.delete().where(promised_accounts.c.user_id == user_id))


def _create(connection: Connection, newcomer: Newcomer, user_id: str, gives_account: bool) -> User:
    actor = by_configuration(newcomer.rule, newcomer.address)
    proof: Proof = "provider" if newcomer.issuer else "mail"
    user = insert_user(connection, actor, newcomer.email, newcomer.name, "none", user_id=user_id, proof=proof)
    if newcomer.password_hash is not None:
        values = {"password_hash": newcomer.password_hash, "password_set_at": now()}
        connection.execute(users.update().where(users.c.id == user_id).values(values))
    if newcomer.subject:
        came = user.actor(newcomer.address)
        insert_identity(connection, came, user_id, newcomer.issuer, newcomer.subject, is_verified=True)
    if gives_account:
        account = f"u-{user_id.partition('_')[2]}"
        row = {"user_id": user_id, "account": account, "rule": newcomer.rule, "created_at": now()}
        connection.execute(promised_accounts.insert().values(row))
        put_membership(connection, actor, user, account, "owner", given_by="sign-up")
    elif not newcomer.is_expected:
        use_invitations_of(connection, user, newcomer.address)
    return user_by_id(connection, user_id)


class SignUpCredits:
    """Counts the accounts that begin with `[console] signup_credit`, at most `most` in `CREDITED_WITHIN`.

    Networks do not bound the people whom an identity provider sends: an office has one address, and where everybody
    gets an identity for nothing, one person has many. So this bounds what the operator gives away in a day, for the
    whole site; it is counted in the store.
    """

    def __init__(self, links: Links, most: int) -> None:
        self._links = links
        self._most = most

    async def take(self, account: str) -> bool:
        """Count an account; False beyond the limit.

        It is counted before the credit is given, so parallel sign-ups do not pass. A repeat for the same account is not
        counted again.
        """
        taken = int(
            await self._links.link(CREDITED).eval(
                _TAKE_CREDIT, [CREDITED], [account, str(self._most), str(CREDITED_WITHIN)]
            )
        )
        if taken == -1:
            gateway_log.warning(
                "new accounts begin without signup_credit: console.signup_credits_per_day (%d) is reached", self._most
            )
        return taken == 1

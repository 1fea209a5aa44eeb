"""Signing up by e-mail: a link is sent to the address, and the person who opens it sets a password.

The page gives the same answer for every address, before anything is looked up.
"""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.mail_tasks import MailTasks
from gateway.admin.times import MICROSECOND, now
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User
from gateway.admin.values import checked_name, normal_email
from gateway.config.settings import Settings
from gateway.database.people_tables import sign_ups
from gateway.errors import GatewayError, InvalidLink, InvalidValue, TooManyRequests
from gateway.http_server.client_address import network_of
from gateway.log import gateway_log
from gateway.people.caused_mail import Cause, CausedMail, Message
from gateway.people.newcomers import Newcomer, Newcomers, is_user
from gateway.people.password_hashes import PasswordHashes, checked_password
from gateway.people.random_ids import new_token, token_hash
from gateway.people.sign_in_limits import PER_ADDRESS, SignInLimits

LIFETIME = timedelta(hours=24) // MICROSECOND
MOST_OF_NETWORK = 1_000  # links that are open for people of one network; the oldest end
MOST_OPEN = 10_000  # of all networks
MOST_OF_ADDRESS = 100  # more than the messages that an address gets while a link is valid: strangers end no link
PATH = "/sign-up/confirm"  # of the console
RULE = "sign-up"
CONFIRM = """Hello,

somebody, probably you, wants to use the AI gateway with this address. Open this link to set a password:

{url}

It works once, for 24 hours. If you did not ask for it, ignore this e-mail.
"""
KNOWN = """Hello,

somebody, probably you, wants to sign up to the AI gateway with this address. You are already registered there. Sign
in, or ask for a new password:

{url}

If you did not ask for it, ignore this e-mail.
"""


class SignUps:
    """Sends links, and creates the users of the people who open them."""

    def __init__(
        self,
        transactions: Transactions,
        newcomers: Newcomers,
        limits: SignInLimits,
        hashes: PasswordHashes,
        mail: CausedMail,
        tasks: MailTasks,
        settings: Settings,
    ) -> None:
        self._transactions = transactions
        self._newcomers = newcomers
        self._limits = limits
        self._hashes = hashes
        self._mail = mail
        self._tasks = tasks
        self._console = settings.console
        self._base = settings.console_url

    @property
    def is_open(self) -> bool:
        """Whether people may ask for a link."""
        return self._console.signup != "closed" and self._mail.is_set_up

    async def request(self, email: str, *, address: str) -> None:
        """Send a link if this person may sign up; returns before anything is looked up.

        SignInLimited, TooManyRequests, InvalidValue.
        """
        if not self.is_open:
            raise InvalidValue("Nobody can sign up here; ask the operator for an invitation")
        email = normal_email(email)
        most = max(PER_ADDRESS, self._console.signup_limit)
        await self._limits.attempt(f"sign-up {email} {network_of(address)}", address, "sign-up", most=most)
        self._tasks.begin(address, lambda: self._send(email, network_of(address)))

    async def finish(self) -> None:
        """Wait for the messages that are being sent."""
        await self._tasks.finish()

    async def email_of(self, token: str) -> str:
        """The address that a link confirms, without using it; InvalidLink."""
        return await self._transactions.read(_find, token)

    async def confirm(self, token: str, *, name: str, password: str, address: str) -> User:
        """Use a link: the new user, who signs in with the password.

        InvalidLink, InvalidValue, SignInRefused, SignInLimited.
        """
        email, name = await self.email_of(token), checked_name(name)
        checked_password(password, email=email)
        await self._limits.attempt_link(token, address)
        hashed = await self._hashes.hash(password, address)
        newcomer = Newcomer(email=email, name=name, rule=RULE, address=address, password_hash=hashed)
        user = await self._newcomers.create(newcomer)  # which ends the links of the address
        await self._limits.link_worked(token, address)
        return user

    async def _send(self, email: str, network: str) -> None:
        try:
            if await self._transactions.read(is_user, email) or await self._newcomers.may_come(email):
                await self._mail.send(email, lambda: self._message(email, network), Cause.request("sign-up", network))
        except TooManyRequests:
            return
        except GatewayError as error:
            gateway_log.error("a link to sign up could not be made: %s %s", error.message, error.log_text())

    async def _message(self, email: str, network: str) -> Message:
        base = self._base
        if await self._transactions.read(is_user, email):
            return Message("You are already registered", KNOWN.format(url=f"{base}/sign-in"))
        token = await self._transactions.write(insert_sign_up, email, network)
        return Message("Confirm your address", CONFIRM.format(url=f"{base}{PATH}?token={token}"))


def insert_sign_up(connection: Connection, email: str, network: str = "") -> str:
    """A new token; the oldest ones of the address, of the network and of all end if there are too many."""
    at, token, table = now(), new_token(), sign_ups.c
    _make_room(connection, table.email == email, MOST_OF_ADDRESS)
    _make_room(connection, table.network == network, MOST_OF_NETWORK)
    _make_room(connection, sa.true(), MOST_OPEN)
    row = {"token_hash": token_hash(token), "email": email, "created_at": at, "expires_at": at + LIFETIME}
    connection.execute(sign_ups.insert().values(row | {"network": network}))
    return token


def _make_room(connection: Connection, condition: sa.ColumnElement[bool], most: int) -> None:
    """Remove the oldest that meet the condition, so that one more is within the limit."""
    table = sign_ups.c
    newest_first = sa.select(table.token_hash).where(condition).order_by(table.expires_at.desc(), table.token_hash)
    surplus = list(connection.scalars(newest_first.offset(most - 1)))
    if surplus:
        connection.execute(sign_ups.delete().where(table.token_hash.in_(surplus)))


def _find(connection: Connection, token: str) -> str:
    table = sign_ups.c
    query = sa.select(table.email).where(table.token_hash == token_hash(token), table.expires_at > now())
    email: str | None = connection.scalar(query)
    if email is None:
        raise InvalidLink
    return email

"""Signing up by e-mail: a link is sent to the address, and the person who opens it sets a password.

The page gives the same answer for every address, before anything is looked up.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.mail import Mail
from gateway.admin.newcomers import Newcomer, Newcomers, is_user
from gateway.admin.password_hashes import PasswordHashes, checked_password
from gateway.admin.random_ids import new_token, token_hash
from gateway.admin.sign_in_limits import PER_ADDRESS, SignInLimits, network_of
from gateway.admin.times import MICROSECOND
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User
from gateway.admin.users import now
from gateway.admin.values import checked_name, normal_email
from gateway.config.console_settings import ConsoleSettings
from gateway.database.people_tables import sign_ups
from gateway.errors import AlreadyExists, GatewayError, InvalidLink, InvalidValue
from gateway.log import gateway_log

LIFETIME = timedelta(hours=24) // MICROSECOND
MOST_OF_NETWORK = 1_000  # links that are open for people of one network; the oldest end
MOST_OPEN = 10_000  # of all networks
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
        mail: Mail,
        console: ConsoleSettings,
    ) -> None:
        self._transactions = transactions
        self._newcomers = newcomers
        self._limits = limits
        self._hashes = hashes
        self._mail = mail
        self._console = console
        self._running: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether people may ask for a link."""
        return self._console.signup != "closed" and self._mail.is_set_up

    async def request(self, email: str, *, address: str) -> None:
        """Send a link if this person may sign up; returns before anything is looked up. SignInLimited, InvalidValue."""
        if not self.is_open:
            raise InvalidValue("Nobody can sign up here; ask the operator for an invitation")
        email = normal_email(email)
        most = max(PER_ADDRESS, self._console.signup_limit)
        await self._limits.attempt(f"sign-up {email}", address, "sign-up", most=most)
        task = asyncio.create_task(self._send(email, network_of(address)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def finish(self) -> None:
        """Wait for the messages that are being sent."""
        await asyncio.gather(*self._running)

    async def email_of(self, token: str) -> str:
        """The address that a link confirms, without using it; InvalidLink."""
        return await self._transactions.read(_find, token)

    async def confirm(self, token: str, *, name: str, password: str, address: str) -> User:
        """Use a link: the new user, who signs in with the password. InvalidLink, InvalidValue, SignInRefused."""
        email = await self.email_of(token)
        newcomer = Newcomer(
            email=email,
            name=checked_name(name),
            rule=RULE,
            address=address,
            password_hash=await self._hashes.hash(checked_password(password, email=email)),
        )
        user = await self._newcomers.create(newcomer)
        await self._transactions.write(_forget, email)
        return user

    async def _send(self, email: str, network: str) -> None:
        base = self._console.base_url
        try:
            if await self._transactions.read(is_user, email):
                await self._mail.send(email, "You are already registered", KNOWN.format(url=f"{base}/sign-in"))
            elif await self._newcomers.may_come(email):
                token = await self._transactions.write(insert_sign_up, email, network)
                await self._mail.send(email, "Confirm your address", CONFIRM.format(url=f"{base}{PATH}?token={token}"))
        except AlreadyExists:
            return  # another process sends a link to this address at this moment
        except GatewayError as error:
            gateway_log.error("a link to sign up could not be made: %s %s", error.message, error.log_text())


def insert_sign_up(connection: Connection, email: str, network: str = "") -> str:
    """A new token; an earlier one of the address ends, and the oldest of the network and of all if there are too many.

    AlreadyExists if another process inserts one for the address at this moment.
    """
    at, token, table = now(), new_token(), sign_ups.c
    connection.execute(sign_ups.delete().where(table.email == email))
    _make_room(connection, table.network == network, MOST_OF_NETWORK)
    _make_room(connection, sa.true(), MOST_OPEN)
    row = {"token_hash": token_hash(token), "email": email, "created_at": at, "expires_at": at + LIFETIME}
    try:
        connection.execute(sign_ups.insert().values(row | {"network": network}))
    except sa.exc.IntegrityError:
        raise AlreadyExists from None
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


def _forget(connection: Connection, email: str) -> None:
    connection.execute(sign_ups.delete().where(sign_ups.c.email == email))

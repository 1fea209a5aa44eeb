"""E-mails that a person or program causes: invitations, links for a new password, and answers to sign-ups.

Each kind has a limit for each address in 24 hours, and a lower limit for each sender. So nobody can fill the mailbox of
another person, and the messages of one kind do not use up the limit of another kind. Addresses that differ only in dots
or in a part after `+` count as one address, because many servers deliver them to one mailbox. A person or program
without rights on the site has a further limit for invitations to all addresses together. All such messages are sent
here. Messages about events of the gateway have their recipients in the configuration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.admin.mail import Delivery, Mail
from gateway.errors import GatewayError, TooManyRequests
from gateway.http_server.client_address import wider_network
from gateway.people.stored_counts import StoredCounts

WINDOW: Final = 86_400  # seconds after the first message
PER_RECIPIENT: Final = 10  # of one kind, of all senders
SHARE: Final = 5  # of one kind, of one sender: a person, a token, or a network of people who are not known
OWN: Final = 5  # that the recipient asks for in a known browser: others do not use them up
#: In an hour beyond PER_RECIPIENT, for networks that have asked for none: strangers delay others, and shut nobody out.
FIRST_ONES: Final = 2
FIRST_WINDOW: Final = 3_600  # seconds
PER_SENDER: Final = 50  # invitations of one sender to all addresses
PER_ACCOUNT: Final = 100  # invitations to one account
FULL: Final = "This address was sent as many e-mails of this kind as it gets in 24 hours; try again later"
SPENT: Final = "You or others of the account have sent as many invitations as you can in 24 hours; try again later"

Kind = Literal["invitation", "password", "sign-up"]
#: `recipient`: in a known browser. `stranger`: a network. `owner`: a person or program without the right to manage
#: users of the site. `program`: one that has it. `operator`: only the own messages of one are counted.
Standing = Literal["recipient", "stranger", "owner", "program", "operator"]


class Cause(Struct, frozen=True, kw_only=True):
    """Who causes a message of which kind."""

    kind: Kind
    sender: str
    standing: Standing
    account: str = ""  # that an invitation is to

    @classmethod
    def invitation(cls, actor: Actor, account: str) -> Cause:
        """An invitation to an account, or with "" to the site."""
        by: Standing = "operator" if actor.is_operator else "program" if actor.may("users") else "owner"
        return cls(kind="invitation", sender=actor.name, standing=by, account=account)

    @classmethod
    def request(cls, kind: Kind, network: str, *, is_own: bool = False) -> Cause:
        """What people ask for who are not signed in. `is_own`: the recipient, in a known browser."""
        return cls(kind=kind, sender=network, standing="recipient" if is_own else "stranger")


class Message(Struct, frozen=True):
    """What is sent."""

    subject: str
    text: str

    def __repr__(self) -> str:
        return f"Message(subject={self.subject!r}, text='***')"


Write = Callable[[], Awaitable[Message | None]]


class CausedMail:
    """`[mail]`, with the limits of the recipients."""

    def __init__(self, mail: Mail, counts: StoredCounts) -> None:
        self._mail = mail
        self._counts = counts

    @property
    def is_set_up(self) -> bool:
        """Whether there is a server."""
        return self._mail.is_set_up

    async def send(self, to: str, write: Write, cause: Cause) -> Delivery:
        """Count, write and send a message; an error of `write` is raised.

        TooManyRequests if the address or the sender has no more today: then nothing is written. Nothing is sent or
        counted if `write` gives None. StoreUnavailable if it cannot be counted.
        """
        counted = await self._count(cause, _mailbox(to))
        delivery = Delivery(False)
        try:
            if (message := await write()) is not None:
                delivery = await self._mail.send(to, message.subject, message.text, sender=cause.sender)
        finally:
            if not delivery.is_sent:
                await self._take_back(counted)
        return delivery

    async def _count(self, cause: Cause, mailbox: str) -> list[str]:
        """Count one in the counters of a message, and return their names; TooManyRequests."""
        of_sender, of_mailbox = self._of_sender(cause), self._of_mailbox(cause, mailbox)
        if ends := await self._counts.add_all(of_sender, WINDOW):
            raise TooManyRequests(SPENT, retry_after=ends)
        if not (ends := await self._counts.add_all(of_mailbox, WINDOW)):
            return _names([*of_sender, *of_mailbox])
        if cause.standing == "stranger":
            share, _ = of_mailbox[0]
            first = [(self._counts.name(f"{cause.kind}-first", mailbox), FIRST_ONES)]
            if not await self._counts.add_all([(share, 1)], WINDOW):
                if not (ends := await self._counts.add_all(first, FIRST_WINDOW)):
                    return [share, *_names(first)]
                await self._take_back([share])
        await self._take_back(_names(of_sender))
        raise TooManyRequests(FULL, retry_after=ends)

    def _of_sender(self, cause: Cause) -> list[tuple[str, int]]:
        if cause.standing != "owner":
            return []
        name = self._counts.name
        return [(name("sent-mail", cause.sender), PER_SENDER), (name("account-mail", cause.account), PER_ACCOUNT)]

    def _of_mailbox(self, cause: Cause, mailbox: str) -> list[tuple[str, int]]:
        name, kind = self._counts.name, cause.kind
        if cause.standing == "recipient":
            return [(name(f"{kind}-own", mailbox), OWN)]
        share = name(f"{kind}-share", f"{wider_network(cause.sender)} {mailbox}"), SHARE
        of_all = name(f"{kind}-recipient", mailbox), PER_RECIPIENT
        return [share] if cause.standing == "operator" else [share, of_all]

    async def _take_back(self, names: list[str]) -> None:
        try:
            for name in names:
                await self._counts.take_back(name)
        except GatewayError:
            return  # the store is away: it counts until the end of the day


def _names(counters: list[tuple[str, int]]) -> list[str]:
    return [name for name, _ in counters]


def _mailbox(address: str) -> str:
    local, _, domain = address.rpartition("@")
    return f"{local.partition('+')[0].replace('.', '')}@{domain}"

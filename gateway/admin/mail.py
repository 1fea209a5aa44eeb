"""E-mail by SMTP, made and sent in threads of its own: a server that does not answer delays other e-mails only.

A message that cannot be made or sent is a result, not an error: the caller shows its link instead.
"""

from __future__ import annotations

import smtplib
import ssl
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Final, Protocol

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.config.secret import Secret
from gateway.config.settings import Settings
from gateway.email_address import is_address
from gateway.errors import TooManyRequests
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.web.work_threads import FairThreads

TIMEOUT = 10.0  # seconds for each step
IMPLICIT_TLS = 465  # the port
AT_ONCE: Final = 4  # messages
SHARE: Final = 2  # of them of one sender: a person, a token, or a network of people who are not known
MOST_OF_SENDER: Final = 32  # that wait
MOST_WAITING: Final = 256
CROWDED: Final = "too many e-mails wait to be sent"
REFUSED: Final = "the mail server did not take it"
OTHER_FORM = "no e-mail is sent to an address of this form; give the person an address in the form of new ones"


class Delivery(Struct, frozen=True):
    """Whether a message was taken by the server; `problem` says why not, and is in words of the server if `is_quoted`.

    `is_final`: it will not be sent at another attempt either.
    """

    is_sent: bool
    problem: str = ""
    is_final: bool = False
    is_quoted: bool = False

    def problem_for(self, actor: Actor) -> str:
        """Why it was not sent. The words of the server have addresses and logins: they are for operators."""
        return self.problem if actor.is_operator or not self.is_quoted else REFUSED


class Mail(Protocol):
    """Sends messages."""

    @property
    def is_set_up(self) -> bool:
        """Whether there is a server."""

    async def send(self, to: str, subject: str, text: str, *, sender: str = "") -> Delivery:
        """Send a message; never fails. Senders take turns: `sender` is who asked for it, "" the gateway itself."""


def mail_threads() -> FairThreads:
    """Threads in which messages are sent."""
    return FairThreads("mail", AT_ONCE, share=SHARE, most_of_one=MOST_OF_SENDER, most=MOST_WAITING, refusal=CROWDED)


class SmtpMail:
    """The server of `[mail]`. `metrics` counts the messages; `threads` are those of `mail_threads`."""

    def __init__(
        self, settings: Settings, metrics: Metrics | None = None, *, threads: FairThreads | None = None
    ) -> None:
        self._mail = settings.mail
        self._password: Secret | None = settings.mail_password
        self._metrics = metrics or Metrics()
        self._threads = threads or mail_threads()

    @property
    def is_set_up(self) -> bool:
        """Whether there is a server."""
        return bool(self._mail.host)

    async def send(self, to: str, subject: str, text: str, *, sender: str = "") -> Delivery:
        """Send a message to an address exactly as it is stored; never fails."""
        if not self.is_set_up:
            return Delivery(False, "no mail server is configured")
        if not is_address(to):
            delivery = Delivery(False, OTHER_FORM, is_final=True)
        else:
            delivery = await self._in_turn(sender, to, subject, text)
        if not delivery.is_sent:
            gateway_log.error("an e-mail could not be sent: %s", delivery.problem)
        self._metrics.inc("gateway_emails", ("sent" if delivery.is_sent else "failed",))
        return delivery

    async def _in_turn(self, sender: str, to: str, subject: str, text: str) -> Delivery:
        try:
            return await self._threads.run(sender, self._attempt, to, subject, text)
        except TooManyRequests:
            return Delivery(False, CROWDED)

    def _attempt(self, to: str, subject: str, text: str) -> Delivery:
        try:
            message = self._message(to, subject, text)
            with self._connected() as server:
                if self._mail.user and self._password is not None:
                    server.login(self._mail.user, self._password.reveal())
                # The envelope is the address itself; smtplib would read it from the header again.
                server.send_message(message, from_addr=self._mail.sender, to_addrs=[to])
        except Exception as error:
            # Whatever happens here, the request or task that sends goes on without the message.
            answer = " ".join(str(error).split()).replace(to, "(the address)")
            return Delivery(False, f"{type(error).__name__}: {answer}", is_quoted=True)
        return Delivery(True)

    def _message(self, to: str, subject: str, text: str) -> EmailMessage:
        sender = self._mail.sender
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = _header(sender), _header(to), subject
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=sender.rpartition("@")[2])
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        return message

    def _connected(self) -> smtplib.SMTP:
        host, port = self._mail.host, self._mail.port
        if port == IMPLICIT_TLS:
            return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT, context=ssl.create_default_context())
        server = smtplib.SMTP(host, port, timeout=TIMEOUT)
        if self._mail.starttls:
            try:
                server.starttls(context=ssl.create_default_context())
            except BaseException:
                server.close()
                raise
        return server


def _header(address: str) -> Address:
    local, _, domain = address.rpartition("@")
    return Address(username=local, domain=domain)

"""E-mail by SMTP, sent in a thread.

A message that cannot be sent is a result, not an error: the caller shows its link instead.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Protocol

from msgspec import Struct

from gateway.config.secret import Secret, SecretError
from gateway.config.settings import Settings
from gateway.log import gateway_log

TIMEOUT = 10.0  # seconds for each step
IMPLICIT_TLS = 465  # the port


class Delivery(Struct, frozen=True):
    """Whether a message was taken by the server; `problem` says why not, for the operator."""

    is_sent: bool
    problem: str = ""


class Mail(Protocol):
    """Sends messages."""

    @property
    def is_set_up(self) -> bool:
        """Whether there is a server."""

    async def send(self, to: str, subject: str, text: str) -> Delivery:
        """Send a message; never fails."""


class SmtpMail:
    """The server of `[mail]`."""

    def __init__(self, settings: Settings) -> None:
        self._mail = settings.mail
        self._password: Secret | None = settings.mail_password

    @property
    def is_set_up(self) -> bool:
        """Whether there is a server."""
        return bool(self._mail.host)

    async def send(self, to: str, subject: str, text: str) -> Delivery:
        """Send a message to a normalised address; never fails."""
        if not self.is_set_up:
            return Delivery(False, "no mail server is configured")
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._mail.sender, to, subject
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=self._mail.sender.rpartition("@")[2])
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        try:
            await asyncio.to_thread(self._send, message)
        except (OSError, smtplib.SMTPException, SecretError) as error:
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            gateway_log.error("an e-mail could not be sent: %s", problem)
            return Delivery(False, problem)
        return Delivery(True)

    def _send(self, message: EmailMessage) -> None:
        with self._connected() as server:
            if self._mail.user and self._password is not None:
                server.login(self._mail.user, self._password.reveal())
            server.send_message(message)

    def _connected(self) -> smtplib.SMTP:
        host, port, context = self._mail.host, self._mail.port, ssl.create_default_context()
        if port == IMPLICIT_TLS:
            return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT, context=context)
        server = smtplib.SMTP(host, port, timeout=TIMEOUT)
        if self._mail.starttls:
            try:
                server.starttls(context=context)
            except BaseException:
                server.close()
                raise
        return server

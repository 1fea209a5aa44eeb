"""The e-mails that people get: invitations and links for a new password."""

from __future__ import annotations

import asyncio

from gateway.admin.invitations import NewInvitation
from gateway.admin.mail import Delivery, Mail
from gateway.admin.sign_in_limits import SignInLimits
from gateway.admin.sign_in_links import NewLink, SignInLinks
from gateway.admin.times import time_text
from gateway.admin.values import normal_email
from gateway.errors import GatewayError, InvalidValue
from gateway.log import gateway_log

INVITATION = """Hello,

you are invited to {place}. Open this link to accept:

{url}

It works once, until {expires}. If you did not expect this e-mail, ignore it.
"""
RESET = """Hello,

somebody, probably you, asked for a new password. Open this link to set one:

{url}

It works once, until {expires}. If you did not ask for it, ignore this e-mail: your password stays as it is.
"""


class Messages:
    """Sends links to the people they are for."""

    def __init__(self, mail: Mail, links: SignInLinks, limits: SignInLimits) -> None:
        self._mail = mail
        self._links = links
        self._limits = limits
        self._running: set[asyncio.Task[None]] = set()

    async def invite(self, new: NewInvitation) -> Delivery:
        """Send an invitation; if it is not sent, the caller shows the link."""
        invitation = new.invitation
        place = f"the account {invitation.account}" if invitation.account else "the AI gateway"
        text = INVITATION.format(place=place, url=new.url, expires=time_text(invitation.expires))
        return await self._mail.send(invitation.email, f"Invitation to {place}", text)

    async def invite_by_mail(self, new: NewInvitation, *, wanted: bool) -> Delivery | None:
        """`invite`, if it is wanted and there is a mail server; None if not."""
        return await self.invite(new) if wanted and self._mail.is_set_up else None

    async def request_reset(self, email: str, *, address: str = "") -> None:
        """Send a link for a new password, if there is such a user.

        It returns before the link is made, so that its answer and time do not tell whether the user exists.
        SignInLimited; InvalidValue without a mail server.
        """
        if not self._mail.is_set_up:
            raise InvalidValue("No e-mail can be sent; ask the operator for a link")
        email = normal_email(email)
        await self._limits.attempt(f"reset {email}", address, "mail")
        task = asyncio.create_task(self._send_reset(email))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def finish(self) -> None:
        """Wait for the messages that are being sent."""
        await asyncio.gather(*self._running)

    async def _send_reset(self, email: str) -> None:
        try:
            link = await self._links.create_for_reset(email)
        except GatewayError as error:
            gateway_log.error("a link for a new password could not be made: %s %s", error.message, error.log_text())
            return
        if link is not None:
            await self._send_link(link)

    async def _send_link(self, link: NewLink) -> None:
        text = RESET.format(url=link.url, expires=time_text(link.expires))
        await self._mail.send(link.user.email, "A new password", text)

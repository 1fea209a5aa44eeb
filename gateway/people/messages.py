"""The e-mails that people get: invitations and links for a new password."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from gateway.admin.actor import AccountRole, Actor, SiteRole
from gateway.admin.mail import CROWDED, Delivery
from gateway.admin.mail_tasks import MailTasks
from gateway.admin.times import time_text
from gateway.admin.values import known_email, normal_email
from gateway.errors import Forbidden, GatewayError, InvalidValue, TooManyRequests
from gateway.http_server.client_address import network_of
from gateway.log import gateway_log
from gateway.people.caused_mail import Cause, CausedMail, Message
from gateway.people.invitations import Invitations, NewInvitation
from gateway.people.known_places import Place
from gateway.people.sign_in import Client, SignIn
from gateway.people.sign_in_limits import RecordedAttempts, SignInLimits
from gateway.people.sign_in_links import SignInLinks

NOBODY = Client()

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


class Invited(Struct, frozen=True):
    """A new invitation, and what became of its e-mail; None without one."""

    new: NewInvitation
    delivery: Delivery | None = None

    @property
    def is_sent(self) -> bool:
        """Whether the address has the link. If not, the caller shows it."""
        return self.delivery is not None and self.delivery.is_sent


class Messages:
    """Sends links to the people they are for."""

    def __init__(
        self,
        mail: CausedMail,
        tasks: MailTasks,
        links: SignInLinks,
        limits: SignInLimits,
        invitations: Invitations,
        sign_in: SignIn,
    ) -> None:
        self._mail = mail
        self._tasks = tasks
        self._links = links
        self._limits = limits
        self._invitations = invitations
        self._recorded = RecordedAttempts()
        self._sign_in = sign_in

    async def invite_to_account(
        self, actor: Actor, email: str, account: str, role: AccountRole, *, by_mail: bool = True
    ) -> Invited:
        """`Invitations.to_account`, sent by e-mail if there is a mail server.

        TooManyRequests, without an invitation, if the address or the actor has no more today. Without `by_mail` the
        link is shown: Forbidden for an actor who may not learn who is a user, if there is a mail server.
        """
        make = partial(self._invitations.to_account, actor, email, account, role)
        return await self._invite(actor, email, account, make, by_mail=by_mail)

    async def invite_to_site(self, actor: Actor, email: str, role: SiteRole, *, by_mail: bool = True) -> Invited:
        """`Invitations.to_site`; otherwise as `invite_to_account`."""
        make = partial(self._invitations.to_site, actor, email, role)
        return await self._invite(actor, email, "", make, by_mail=by_mail)

    async def _invite(
        self, actor: Actor, email: str, account: str, make: Callable[..., Awaitable[NewInvitation]], *, by_mail: bool
    ) -> Invited:
        """Who opens a link that was sent proves the address. So this is noted before, and taken back if it was not.

        Earlier invitations end when the new one was sent, or is to be shown.
        """
        if not self._mail.is_set_up:
            return Invited(await make())
        if not by_mail:
            if not actor.may("users"):
                raise Forbidden(
                    "Only the invited address gets the link; for 'mail': false you need 'users' of the site"
                )
            return Invited(await make())
        made = list[NewInvitation]()

        async def write() -> Message:
            made.append(await make(to_be_sent=True))
            return _invitation(made[0])

        delivery = await self._mail.send(normal_email(email), write, Cause.invitation(actor, account))
        if delivery.problem == CROWDED:  # who sends many at once gets no link in this way
            await self._invitations.withdraw(actor, made[0].invitation.id)
            raise TooManyRequests(f"The invitation was not sent: {CROWDED}; try again in a moment")
        await self._invitations.note_mailed(made[0].invitation.id, delivery.is_sent)
        return Invited(made[0], delivery)

    async def request_reset(self, email: str, client: Client = NOBODY) -> None:
        """Send a link for a new password, if there is such a user.

        It returns before the link is made, so that its answer and time do not tell whether the user exists.
        SignInLimited, TooManyRequests; InvalidValue without a mail server.
        """
        if not self._mail.is_set_up:
            raise InvalidValue("No e-mail can be sent; ask the operator for a link")
        place = await self._sign_in.place(known_email(email), client)
        await self._limits.attempt_request("reset", place, client.address, "mail")
        self._tasks.begin(client.address, lambda: self._send_reset(place, client.address))

    async def finish(self) -> None:
        """Wait for the messages that are being sent."""
        await self._tasks.finish()

    async def _send_reset(self, place: Place, address: str) -> None:
        network = network_of(address) if address else ""
        try:
            user_id = await self._links.active_user(place.email)
            if not user_id:
                return
            cause = Cause.request("password", network, is_own=place.is_browser)
            delivery = await self._mail.send(place.email, lambda: self._reset(place.email, network), cause)
        except TooManyRequests:
            gateway_log.warning("user %s got no link for a new password: too many were asked for", user_id)
            return
        except GatewayError as error:
            gateway_log.error("a link for a new password could not be made: %s %s", error.message, error.log_text())
            return
        if not delivery.is_sent and delivery.problem:
            gateway_log.warning("user %s got no link for a new password: %s", user_id, delivery.problem)

    async def _reset(self, email: str, network: str) -> Message | None:
        is_recorded = self._recorded.admits(f"{network} reset", f"reset {email}")
        link = await self._links.create_for_reset(email, is_recorded=is_recorded)
        if link is None:  # the address was changed meanwhile
            return None
        return Message("A new password", RESET.format(url=link.url, expires=time_text(link.expires)))


def _invitation(new: NewInvitation) -> Message:
    invitation = new.invitation
    place = f"the account {invitation.account}" if invitation.account else "the AI gateway"
    text = INVITATION.format(place=place, url=new.url, expires=time_text(invitation.expires))
    return Message(f"Invitation to {place}", text)

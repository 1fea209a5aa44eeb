"""Signs people in who come from an identity provider, and decides which user they are.

A person is found by issuer and subject. Only a person who is not known that way is found by a verified e-mail address,
and is known by issuer and subject from then on. A user who has a password is asked for it once before that: somebody
else may have created a user with this address. A person who does not know it takes the user over, if nobody has proved
the address or given the user a role. A user who has a second factor is connected when the code was right.
`gateway.people.newcomers` decides about people who are not users yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.accounts.accounts import Directory
from gateway.admin.actor import Actor, by_configuration
from gateway.admin.audit_trail import record
from gateway.admin.granted import Granted
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id
from gateway.database.people_tables import users
from gateway.errors import (
    AlreadyExists,
    GatewayError,
    IdentityProviderUnavailable,
    NotFound,
    SignInFailed,
    SignInRefused,
)
from gateway.http_server.client_address import network_of
from gateway.log import gateway_log
from gateway.people.grants import granted_by
from gateway.people.invitations import Invitations
from gateway.people.memberships import Memberships
from gateway.people.newcomers import Newcomer, Newcomers
from gateway.people.oidc.entering import (
    Entry,
    accept_invitation,
    connect_signed_in,
    enter,
    enter_anew,
    enter_as,
    enter_by_email,
    entered_by_others,
    match,
    taken_over_by,
)
from gateway.people.oidc.flows import Begun, Callback, Flow, Flows, Purpose, is_of
from gateway.people.oidc.person import Person, person_of
from gateway.people.oidc.providers import Listed, Providers
from gateway.people.password_hashes import PasswordHashes
from gateway.people.random_ids import new_token, token_hash
from gateway.people.sessions import NewSession
from gateway.people.sign_in import Client, SecondStep, credentials, known_since
from gateway.people.sign_in_limits import RecordedAttempts, SignInLimits
from gateway.people.take_over import may_be_taken_over

T = TypeVar("T")
OLD = "This sign-in is too old, was used already, or was begun in another browser. Begin again on the sign-in page"
#: Reasons of a refusal that another sign-in of the same person may have caused at the same moment.
RACED = frozenset({"changed", "other_user", "other_identity"})


class Away(Struct, frozen=True):
    """The browser goes to `url` with the secret `browser` in a cookie, and comes back with `state`."""

    url: str
    state: str
    browser: str
    label: str

    def __repr__(self) -> str:
        return "Away(url='***', state='***', browser='***')"


class Entered(Struct, frozen=True):
    """The person is in, but for a code; `path` is where they wanted to go."""

    begun: NewSession | SecondStep
    path: str


class Connected(Struct, frozen=True):
    """A user who was signed in is connected with the provider."""

    label: str


class PasswordNeeded(Struct, frozen=True):
    """The user has a password, which is asked for once; the browser gets a new cookie."""

    state: str
    browser: str

    def __repr__(self) -> str:
        return "PasswordNeeded(state='***', browser='***')"


class Confirming(Struct, frozen=True):
    """Whose password is asked for. `takes_over`: the person may go on without it, and all of before ends."""

    email: str
    has_password: bool
    takes_over: bool


class OidcSignIn:
    """Sign-ins by the providers of the configuration."""

    def __init__(
        self,
        providers: Providers,
        flows: Flows,
        transactions: Transactions,
        *,
        newcomers: Newcomers,
        memberships: Memberships,
        invitations: Invitations,
        directory: Directory,
        hashes: PasswordHashes,
        limits: SignInLimits,
    ) -> None:
        self._providers = providers
        self._flows = flows
        self._transactions = transactions
        self._newcomers = newcomers
        self._memberships = memberships
        self._invitations = invitations
        self._directory = directory
        self._hashes = hashes
        self._limits = limits
        self._recorded = RecordedAttempts()

    @property
    def providers(self) -> list[Listed]:
        """Those of the configuration."""
        return self._providers.listed

    async def begin(self, name: str, address: str, *, path: str, invitation: str = "", connects: str = "") -> Away:
        """Send a browser to a provider. NotFound, IdentityProviderUnavailable, SignInLimited.

        `invitation`: the token of one that is accepted with the sign-in. `connects`: the id of the user who is signed
        in and is to be connected.
        """
        provider = self._providers.get(name)
        counted = _counted(connects, address)
        await self._limits.attempt(*counted, "provider")
        async with self._outages_not_counted(counted):
            await provider.reach()  # before anything is remembered
        purpose: Purpose = "invitation" if invitation else "connect" if connects else "sign_in"
        nonce, verifier = new_token(), new_token()
        hashed = token_hash(invitation).hex() if invitation else ""
        flow = Flow(
            provider=name,
            purpose=purpose,
            path=path,
            nonce=nonce,
            verifier=verifier,
            invitation=hashed,
            user_id=connects,
        )
        begun = await self._flows.begin(flow)
        url = await provider.authorization_url(state=begun.state, nonce=nonce, verifier=verifier)
        return Away(url, begun.state, begun.browser, provider.settings.label or name)

    async def take_up(self, name: str, callback: Callback, browser: str) -> Flow:
        """The sign-in with which a browser comes back, for `finish`. NotFound; SignInRefused if it is not its own.

        Until it is taken up, the browser's cookie is to stay: anybody can send a browser to the address.
        """
        self._providers.get(name)
        flow = await self._flows.look(callback.state, browser)
        if flow is None or flow.provider != name or flow.purpose == "password":
            raise SignInRefused(OLD, detail="state")
        if await self._flows.take(callback.state, browser) is None:
            raise SignInRefused(OLD, detail="state")
        return flow

    async def finish(
        self, flow: Flow, callback: Callback, client: Client, *, signed_in: Actor | None
    ) -> Entered | Connected | PasswordNeeded:
        """Finish a sign-in that was taken up; `signed_in` is the browser's user, if there is one.

        SignInRefused, with an event in the audit trail; IdentityProviderUnavailable, NotFound, InvalidLink.
        """
        name = flow.provider
        provider = self._providers.get(name)
        counted = _counted(flow.user_id if flow.purpose == "connect" else "", client.address)
        async with self._outages_not_counted(counted):
            asking = provider.claims(callback, nonce=flow.nonce, verifier=flow.verifier, address=client.address)
            claims = await self._watched(name, client, asking)
        person = person_of(name, provider.settings, claims, await self._granted(provider.settings.grants, claims))
        reply = await self._watched(name, client, self._let_in(flow, person, client, signed_in))
        await self._limits.succeeded(*counted, "provider")
        return reply

    async def confirming(self, state: str, browser: str) -> Confirming:
        """Whose password is asked for; SignInRefused."""
        flow = await self._confirming(state, browser)
        user = await self._transactions.read(user_by_id, flow.user_id)
        takes_over = is_of(flow, state, user.email) and await self._transactions.read(may_be_taken_over, user)
        return Confirming(user.email, user.has_password, takes_over)

    async def with_password(self, state: str, browser: str, password: str, client: Client) -> Entered:
        """Connect the user whose password this is, and sign in. SignInFailed for a wrong password, SignInRefused."""
        flow = await self._confirming(state, browser)
        user = await self._transactions.read(user_by_id, flow.user_id)
        since = await self._transactions.read(known_since, user.email)
        place = await self._limits.place(user.email, client.address, client.known_browser, since)
        await self._limits.attempt_password(place, client.address)
        row = await self._transactions.read(credentials, users.c.id == flow.user_id)
        stored = row.password_hash if row is not None and row.disabled_at is None else None
        if not (await self._hashes.verify(stored, password, client.address)).is_right:
            raise SignInFailed
        await self._limits.password_was_right(place, client.address)
        await self._limits.signed_in(place)
        person = await self._confirmed(flow, state, browser, user)
        entry = await self._watched(
            flow.provider, client, self._transactions.write(enter_as, flow.user_id, person, client)
        )
        return Entered(await self._begun(entry, person, client), flow.path)

    async def without_password(self, state: str, browser: str, client: Client) -> Entered:
        """Take over a user, see `may_be_taken_over`: all that was set up for the user ends. SignInRefused."""
        flow = await self._confirming(state, browser)
        user = await self._transactions.read(user_by_id, flow.user_id)
        if not await self._transactions.read(may_be_taken_over, user):
            raise SignInRefused(detail="changed")
        person = await self._confirmed(flow, state, browser, user)
        change = partial(enter_anew, user_id=flow.user_id, person=person, client=client)
        entering = self._invitations.take_over(user, client.address, change)
        entry = await self._watched(flow.provider, client, entering)
        return Entered(await self._begun(entry, person, client), flow.path)

    async def _confirmed(self, flow: Flow, state: str, browser: str, user: User) -> Person:
        """The person of a sign-in that is finished now, with the verified address if it is still that of the user."""
        if await self._flows.take(state, browser) is None:
            raise SignInRefused(OLD, detail="state")
        issuer = self._providers.get(flow.provider).issuer
        email = user.email if is_of(flow, state, user.email) else ""
        return Person(flow.provider, issuer, flow.subject, email=email, name="", granted=flow.granted)

    async def _confirming(self, state: str, browser: str) -> Flow:
        flow = await self._flows.look(state, browser)
        if flow is None or flow.purpose != "password":
            raise SignInRefused(OLD, detail="state")
        return flow

    async def _let_in(
        self, flow: Flow, person: Person, client: Client, signed_in: Actor | None
    ) -> Entered | Connected | PasswordNeeded:
        if flow.purpose == "connect":
            if signed_in is None or flow.user_id != signed_in.id:
                raise SignInRefused(OLD, detail="session")
            await self._transactions.write_as(signed_in, connect_signed_in, person)
            return Connected(next(one.label for one in self.providers if one.name == person.provider))
        if flow.purpose == "invitation":
            return await self._accept(flow, person, client)
        try:
            return await self._sign_in(flow, person, client)
        except (AlreadyExists, SignInRefused) as error:
            if isinstance(error, SignInRefused) and error.detail not in RACED:
                raise
            return await self._sign_in(flow, person, client)  # whatever the other sign-in did is done now

    async def _sign_in(self, flow: Flow, person: Person, client: Client) -> Entered | PasswordNeeded:
        found, user_id = await self._transactions.read(match, person)
        if found == "password":
            begun = await self._ask_password(flow, person, user_id)
            return PasswordNeeded(begun.state, begun.browser)
        if found == "by_email":
            entry = await self._enter_by_email(person, client)
        else:
            if found == "none":
                await self._newcomers.create(_newcomer(person, client.address))
            entry = await self._transactions.write(enter, person, client)
        return Entered(await self._begun(entry, person, client), flow.path)

    async def _enter_by_email(self, person: Person, client: Client) -> Entry:
        ended = await self._transactions.read(entered_by_others, person)
        change = partial(enter_by_email, person=person, client=client)
        return await self._invitations.take_over(ended, client.address, change)

    async def _accept(self, flow: Flow, person: Person, client: Client) -> Entered:
        hashed = bytes.fromhex(flow.invitation)
        ended = await self._transactions.read(taken_over_by, hashed, person)
        accept = partial(accept_invitation, hashed=hashed, person=person, address=client.address)
        try:
            await self._invitations.take_over(ended, client.address, accept)
        except AlreadyExists:  # the invited person became a user at this moment
            await self._invitations.take_over(ended, client.address, accept)
        entry = await self._transactions.write(enter, person, client)
        return Entered(await self._begun(entry, person, client), flow.path)

    async def _ask_password(self, flow: Flow, person: Person, user_id: str) -> Begun:
        wanted = Flow(
            provider=flow.provider,
            purpose="password",
            path=flow.path,
            user_id=user_id,
            subject=person.subject,
            granted=person.granted,
        )
        return await self._flows.begin(wanted, person.email)

    async def _begun(self, entry: Entry, person: Person, client: Client) -> NewSession | SecondStep:
        """What the person gets, once the memberships that the claims do not give any more have ended."""
        actor = by_configuration(f"oidc.{person.provider}", client.address)
        await self._memberships.end_left(actor, entry.user_id, entry.left)
        return entry.begun

    @asynccontextmanager
    async def _outages_not_counted(self, counted: tuple[str, str]) -> AsyncIterator[None]:
        """A fault of the provider uses up none of the attempts."""
        try:
            yield
        except IdentityProviderUnavailable:
            await self._limits.succeeded(*counted, "provider")
            raise

    async def _granted(self, grants: Any, claims: Mapping[str, Any]) -> Granted:
        """What the claims give, without accounts that are not there."""
        given, accounts = granted_by(claims, grants), dict[str, str]()
        for account, role in given.accounts.items():
            try:
                await self._directory.require(account)
            except NotFound:
                gateway_log.warning("a grant of [oidc] names the account %r, which does not exist", account)
            else:
                accounts[account] = role
        return Granted(accounts, given.site_role)

    async def _watched(self, name: str, client: Client, step: Awaitable[T]) -> T:
        """Do a step; a refusal is recorded, unless the client's network has many of them."""
        try:
            return await step
        except GatewayError as error:
            reason = f"{network_of(client.address)} {error.detail or ''}"
            if isinstance(error, SignInRefused) and self._recorded.admits(reason):
                await self._transactions.write(_record_refusal, name, client.address, error.detail or "")
            gateway_log.warning("a sign-in by oidc.%s was refused: %s %s", name, error.code, error.log_text())
            raise


def _counted(connects: str, address: str) -> tuple[str, str]:
    """The subject and the address that a sign-in counts for. Strangers keep nobody from it who is signed in."""
    return (f"connect {connects}", "") if connects else ("", address)


def _newcomer(person: Person, address: str) -> Newcomer:
    return Newcomer(
        email=person.email,
        name=person.name,
        rule=f"oidc.{person.provider}",
        address=address,
        issuer=person.issuer,
        subject=person.subject,
        is_expected=person.granted.is_something,
    )


def _record_refusal(connection: Connection, name: str, address: str, reason: str) -> None:
    actor: Actor = by_configuration(f"oidc.{name}", address)
    record(connection, actor, "sessions.refuse", f"oidc:{name}", after={"reason": reason})

"""Signs people in who come from an identity provider, and decides which user they are.

A person is found by issuer and subject. Only a person who is not known that way is found by a verified e-mail address,
and is known by issuer and subject from then on. A user who has a password is asked for it once before that: somebody
else may have created a user with this address. A user who has a second factor is connected when the code was right.
`gateway.admin.newcomers` decides about people who are not users yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor, by_configuration
from gateway.admin.audit_trail import record
from gateway.admin.directory import Directory
from gateway.admin.memberships import Memberships
from gateway.admin.newcomers import Newcomer, Newcomers
from gateway.admin.oidc.entering import (
    Entry,
    accept_invitation,
    connect_signed_in,
    enter,
    enter_as,
    enter_by_email,
    match,
)
from gateway.admin.oidc.flows import Begun, Callback, Flow, Flows, Purpose
from gateway.admin.oidc.grants import Granted, granted_by
from gateway.admin.oidc.person import Person, person_of
from gateway.admin.oidc.providers import Listed, Providers
from gateway.admin.password_hashes import PasswordHashes
from gateway.admin.random_ids import new_token, token_hash
from gateway.admin.sessions import NewSession
from gateway.admin.sign_in import Client, SecondStep, credentials
from gateway.admin.sign_in_limits import SignInLimits
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import user_by_id
from gateway.database.people_tables import users
from gateway.errors import (
    AlreadyExists,
    GatewayError,
    IdentityProviderUnavailable,
    NotFound,
    SignInFailed,
    SignInRefused,
)
from gateway.log import gateway_log

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
        directory: Directory,
        hashes: PasswordHashes,
        limits: SignInLimits,
    ) -> None:
        self._providers = providers
        self._flows = flows
        self._transactions = transactions
        self._newcomers = newcomers
        self._memberships = memberships
        self._directory = directory
        self._hashes = hashes
        self._limits = limits

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
        await self._limits.attempt("", address, "provider")
        async with self._outages_not_counted(address):
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
        self, flow: Flow, callback: Callback, client: Client, *, signed_in: str
    ) -> Entered | Connected | PasswordNeeded:
        """Finish a sign-in that was taken up; `signed_in` is the id of the browser's user, or "".

        SignInRefused, with an event in the audit trail; IdentityProviderUnavailable, NotFound, InvalidLink.
        """
        name = flow.provider
        provider = self._providers.get(name)
        async with self._outages_not_counted(client.address):
            claims = await self._watched(
                name, client, provider.claims(callback, nonce=flow.nonce, verifier=flow.verifier)
            )
        person = person_of(name, provider.settings, claims, await self._granted(provider.settings.grants, claims))
        reply = await self._watched(name, client, self._let_in(flow, person, client, signed_in))
        await self._limits.succeeded("", client.address, "provider")
        return reply

    async def email_to_confirm(self, state: str, browser: str) -> str:
        """Whose password is asked for; SignInRefused."""
        flow = await self._confirming(state, browser)
        return (await self._transactions.read(user_by_id, flow.user_id)).email

    async def with_password(self, state: str, browser: str, password: str, client: Client) -> Entered:
        """Connect the user whose password this is, and sign in. SignInFailed for a wrong password, SignInRefused."""
        flow = await self._confirming(state, browser)
        user = await self._transactions.read(user_by_id, flow.user_id)
        await self._limits.attempt(f"email {user.email}", client.address)
        row = await self._transactions.read(credentials, users.c.id == flow.user_id)
        stored = row.password_hash if row is not None and row.disabled_at is None else None
        if not (await self._hashes.verify(stored, password)).is_right:
            raise SignInFailed
        await self._limits.succeeded(f"email {user.email}", client.address)
        if await self._flows.take(state, browser) is None:
            raise SignInRefused(OLD, detail="state")
        issuer = self._providers.get(flow.provider).issuer
        person = Person(flow.provider, issuer, flow.subject, email="", name="", granted=flow.granted)
        entry = await self._watched(
            flow.provider, client, self._transactions.write(enter_as, flow.user_id, person, client)
        )
        return Entered(await self._begun(entry, person, client), flow.path)

    async def _confirming(self, state: str, browser: str) -> Flow:
        flow = await self._flows.look(state, browser)
        if flow is None or flow.purpose != "password":
            raise SignInRefused(OLD, detail="state")
        return flow

    async def _let_in(
        self, flow: Flow, person: Person, client: Client, signed_in: str
    ) -> Entered | Connected | PasswordNeeded:
        if flow.purpose == "connect":
            if flow.user_id != signed_in:
                raise SignInRefused(OLD, detail="session")
            await self._transactions.write(connect_signed_in, flow.user_id, person, client.address)
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
            entry = await self._transactions.write(enter_by_email, person, client)
        else:
            if found == "none":
                await self._newcomers.create(_newcomer(person, client.address))
            entry = await self._transactions.write(enter, person, client)
        return Entered(await self._begun(entry, person, client), flow.path)

    async def _accept(self, flow: Flow, person: Person, client: Client) -> Entered:
        hashed = bytes.fromhex(flow.invitation)
        try:
            await self._transactions.write(accept_invitation, hashed, person, client.address)
        except AlreadyExists:  # the invited person became a user at this moment
            await self._transactions.write(accept_invitation, hashed, person, client.address)
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
        return await self._flows.begin(wanted)

    async def _begun(self, entry: Entry, person: Person, client: Client) -> NewSession | SecondStep:
        """What the person gets, once the memberships that the claims do not give any more have ended."""
        actor = by_configuration(f"oidc.{person.provider}", client.address)
        for account in entry.left:
            with suppress(NotFound):  # they have left it meanwhile
                await self._memberships.remove(actor, entry.user_id, account)
        return entry.begun

    @asynccontextmanager
    async def _outages_not_counted(self, address: str) -> AsyncIterator[None]:
        """A fault of the provider uses up none of the attempts of the address."""
        try:
            yield
        except IdentityProviderUnavailable:
            await self._limits.succeeded("", address, "provider")
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
        """Do a step; a refusal is recorded."""
        try:
            return await step
        except GatewayError as error:
            if isinstance(error, SignInRefused):
                await self._transactions.write(_record_refusal, name, client.address, error.detail or "")
            gateway_log.warning("a sign-in by oidc.%s was refused: %s %s", name, error.code, error.log_text())
            raise


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
